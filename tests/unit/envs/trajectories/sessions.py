"""Sessions as hypothesis makes them: branches, side turns, tool calls, reasoning, edited histories, missing ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from openclaw_rl.envs.trajectories.recording import Recording
from openclaw_rl.types import (
    Completion,
    Episode,
    Feedback,
    Judgement,
    Message,
    NextState,
    Outcome,
    Sampling,
    Session,
    Skip,
    TokenLogprob,
    Tool,
    ToolCall,
    Turn,
    TurnRecord,
    Verdict,
    VersionSpan,
    Vote,
)

NAME = "local/s-1"
_text = st.text(max_size=12)
_names = st.text("abcdef_", min_size=1, max_size=6)
_times = st.floats(0.0, 4e9, allow_nan=False)
_arguments = st.one_of(
    st.just("{}"),
    st.just('{"path": "notes.txt", "lines": [1, 2.50]}'),
    st.just('{"a":1}'),
    st.just('{"a": 1, "a": 2}'),
    st.just('{"n": 123456789012345678901234567890, "x": NaN}'),
    st.just("[1]"),
    st.just('{"cut off'),
    _text,
)
_calls = st.builds(ToolCall, id=st.sampled_from(["c1", "c2", "c3"]), name=_names, arguments=_arguments)
_logprobs = st.floats(-50.0, 0.0, allow_nan=False)
_tools = st.lists(
    st.builds(
        Tool, name=_names, description=_text, parameters=st.sampled_from([{}, {"type": "object", "n": [1, None]}])
    ),
    max_size=2,
).map(tuple)

asked = st.one_of(
    st.builds(Message, role=st.just("user"), content=_text),
    st.builds(Message, role=st.just("system"), content=_text),
    st.builds(Message, role=st.just("tool"), content=_text, tool_call_id=st.sampled_from(["c1", "c2", "c9", None])),
    st.builds(Message, role=st.sampled_from(["user", "tool"]), content=_text, name=_names),
    st.builds(Message, role=st.just("assistant"), content=_text, tool_calls=st.lists(_calls, max_size=2).map(tuple)),
)
answers = st.builds(
    Message,
    role=st.just("assistant"),
    content=_text,
    reasoning=_text,
    tool_calls=st.lists(_calls, max_size=2).map(tuple),
    name=st.sampled_from([None, None, None, "bot"]),
)
_verdicts = st.sampled_from(
    [
        Verdict(outcome="failed", reason="no valid vote", votes=(Vote(question="score", score=None, failure="late"),)),
        Verdict(outcome="scored", score=-1, value=-0.37, hints=("Be brief.",), votes=(Vote(question="hint", score=1),)),
        Verdict(outcome="abstained", reason="the votes tie"),
    ]
)


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    ids = tuple(draw(st.lists(st.integers(0, 200_000), max_size=5)))
    cut = draw(st.integers(0, len(ids)))
    spans = [VersionSpan("v3", 0, cut), VersionSpan("v4.ann", cut, len(ids))]
    top = tuple((TokenLogprob(token, -1.5),) for token in ids) if draw(st.booleans()) else None
    return Completion(
        token_ids=ids,
        logprobs=tuple(draw(_logprobs) for _ in ids),
        finish_reason=draw(st.sampled_from(["stop", "length", "tool_calls", "abort"])),
        version_spans=tuple(span for span in spans if span.end > span.start),
        top_logprobs=top,
    )


@st.composite
def requests(draw: st.DrawFn, parent: Turn | None) -> tuple[Message, ...]:
    """What a client sends: the history as it was, edited, shortened, or none; and what is new."""
    new = tuple(draw(st.lists(asked, min_size=1, max_size=3)))
    if parent is None:
        return new
    history = [*parent.messages, parent.message]
    match draw(st.sampled_from(["same", "echo", "clock", "shorter"])):
        case "echo":
            history[-1] = replace(history[-1], reasoning="", content=history[-1].content.strip())
        case "clock":
            history[0] = Message(role="system", content=draw(_text))
        case "shorter":
            history = history[:1]
    return (*history, *new)


@st.composite
def turns(draw: st.DrawFn, index: int, parent: Turn | None) -> Turn:
    completion = draw(completions())
    prompt_ids = tuple(draw(st.lists(st.integers(0, 200_000), min_size=1, max_size=4)))
    return Turn(
        session=NAME,
        index=index,
        parent=None if parent is None else parent.index,
        kind=draw(st.sampled_from(["main", "main", "side"])),
        created_at=draw(_times),
        finished_at=draw(_times),
        dialect=draw(st.sampled_from(["chat", "messages"])),
        model=draw(st.sampled_from(["smollm2#0", "smollm2#0", "other"])),
        messages=draw(requests(parent)),
        tools=draw(_tools),
        sampling=Sampling(
            max_tokens=draw(st.integers(1, 99)), temperature=draw(st.floats(0.0, 2.0)), logit_bias={7: -1.5}, seed=3
        ),
        stop=draw(st.sampled_from([(), ("\n\n", "END")])),
        prompt_ids=prompt_ids,
        num_prefill=draw(st.integers(0, len(prompt_ids))),
        completion=completion,
        message=draw(answers),
        request_digest="",
        chain="",
        skip=draw(st.sampled_from([None, None, Skip.SIDE_TURN, Skip.NO_NEXT_STATE])),
        delivered=draw(st.booleans()),
        label=draw(st.sampled_from(["", "cron"])),
        retrievable=draw(st.booleans()),
    )


def _following(parent: Turn, child: Turn) -> tuple[Message, ...]:
    return child.messages[len(parent.messages) + 1 :]


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    made: list[Turn] = []
    index = draw(st.integers(0, 2))
    for _ in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from([None, *made, *made[-1:], *made[-1:]]))
        made.append(draw(turns(index, parent)))
        index += draw(st.integers(1, 2))
    records = tuple(draw(_records(turn, made)) for turn in made)
    judged = [turn.index for turn in made if draw(st.booleans())]
    return Recording(
        session=draw(_sessions()),
        records=records,
        judgements={each: _judgement(each, draw(_verdicts)) for each in judged},
        outcome=draw(
            st.sampled_from(
                [
                    None,
                    Outcome(episode="e-1", ended_at=9.5, reward=0.37),
                    Outcome(episode="e-1", ended_at=9.5, failure="the box died"),
                ]
            )
        ),
    )


@st.composite
def _records(draw: st.DrawFn, turn: Turn, made: list[Turn]) -> TurnRecord:
    children = [each for each in made if each.parent == turn.index]
    said: Any = st.one_of(st.just(()), st.lists(asked, min_size=1, max_size=2).map(tuple))
    is_next = bool(children) and draw(st.booleans())
    messages = _following(turn, children[0]) if is_next else draw(said)
    state = NextState(session=NAME, index=turn.index, messages=messages, arrived_at=draw(_times))
    given = Feedback(session=NAME, index=turn.index, user="local", given_at=draw(_times), score=1, text=draw(_text))
    return TurnRecord(
        turn=turn,
        next_state=draw(st.sampled_from([state, None])),
        feedback=draw(st.sampled_from([(given,), ()])),
    )


def _judgement(index: int, verdict: Verdict) -> Judgement:
    return Judgement(
        session=NAME,
        index=index,
        num_evidence=2,
        judge="rules",
        prompt_version="rules-1",
        judged_at=12.25,
        verdict=verdict,
    )


@st.composite
def _sessions(draw: st.DrawFn) -> Session:
    episode = Episode(id="e-1", environment="terminal", task="count", group="g-1", attempt=1, group_size=4)
    return Session(
        id=NAME,
        user="local",
        client=draw(st.sampled_from(["openclaw", "curl"])),
        opened_at=draw(_times),
        last_seen_at=draw(_times),
        key=draw(st.sampled_from([None, "k"])),
        closed_at=draw(st.sampled_from([None, 5.5])),
        episode=draw(st.sampled_from([None, episode])),
    )

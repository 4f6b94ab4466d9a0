"""Conversations for the tests of the store, drawn by hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from openclaw_rl.types import Completion, Message, Sampling, Skip, TokenLogprob, Tool, ToolCall, Turn, VersionSpan
from tests.factories.turns import SESSION

# What any client can send and any engine can report. Log-probs are float32: that is what engines compute in.
texts = st.text(max_size=20)
token_ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=12).map(tuple)
logprobs = st.floats(max_value=0.0, width=32, allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
tool_calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts,
    reasoning=texts,
    tool_calls=st.lists(tool_calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
)
answers = messages.map(lambda message: replace(message, role="assistant"))
tools = st.builds(Tool, name=texts, description=texts, parameters=st.dictionaries(texts, json_values, max_size=3))
samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 2**40),
    temperature=st.floats(0, 2),
    top_p=st.floats(0, 1, exclude_min=True),
    top_k=st.integers(0, 100),
    logit_bias=st.dictionaries(st.integers(0, 2**31), st.floats(-100, 100), max_size=3),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    top_logprobs=st.integers(0, 20),
)


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    ids = draw(token_ids)
    cuts = sorted(draw(st.sets(st.integers(1, len(ids) - 1), max_size=3))) if len(ids) > 1 else []
    ends = [*cuts, len(ids)] if ids else []
    top = st.lists(st.builds(TokenLogprob, token_id=st.integers(0, 99), logprob=logprobs), max_size=3).map(tuple)
    return Completion(
        token_ids=ids,
        logprobs=tuple(draw(st.lists(logprobs, min_size=len(ids), max_size=len(ids)))),
        finish_reason=draw(st.sampled_from(["stop", "length", "tool_calls", "abort", "error"])),
        version_spans=tuple(VersionSpan(f"v{i}", a, b) for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False))),
        top_logprobs=draw(st.none() | st.lists(top, min_size=len(ids), max_size=len(ids)).map(tuple)),
    )


@st.composite
def conversations(draw: st.DrawFn, session: str = SESSION) -> list[Turn]:
    """Turns of one session that continue each other in every way: wholly, in part, and not at all."""
    turns: list[Turn] = []
    for index in range(draw(st.integers(1, 6))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        before = None if parent is None else turns[parent]
        prompt, said = draw(token_ids), tuple(draw(st.lists(messages, min_size=1, max_size=3)))
        if before is not None and draw(st.booleans()):
            prompt = before.prompt_ids + prompt
            if draw(st.booleans()):
                prompt = before.prompt_ids + before.completion.token_ids + prompt[len(before.prompt_ids) :]
        if before is not None and draw(st.booleans()):
            said = (*before.messages, *said)
        turns.append(
            Turn(
                session=session,
                index=index,
                parent=parent,
                kind=draw(st.sampled_from(["main", "side"])),
                created_at=draw(st.floats(0, 1e10)),
                finished_at=draw(st.floats(0, 1e10)),
                dialect=draw(texts),
                model=draw(texts),
                messages=said,
                tools=tuple(draw(st.lists(tools, max_size=2))),
                sampling=draw(samplings),
                stop=tuple(draw(st.lists(texts, max_size=2))),
                prompt_ids=prompt,
                num_prefill=draw(st.integers(0, len(prompt))),
                completion=draw(completions()),
                message=draw(answers),
                request_digest=draw(texts),
                chain=draw(texts),
                skip=draw(st.none() | st.sampled_from(list(Skip))),
                delivered=draw(st.booleans()),
                label=draw(texts),
                retrievable=draw(st.booleans()),
            )
        )
    return turns

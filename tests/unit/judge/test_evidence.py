"""What a judge sees of a turn, and of a line of JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.judge.evidence import build_evidence, clip, evidence_from_json
from openclaw_rl.types import (
    ROLES,
    Completion,
    Evidence,
    Feedback,
    Message,
    NextState,
    Role,
    Sampling,
    Tool,
    Turn,
    VersionSpan,
)
from tests.unit.judge.talk import called, said, thumbs

MAIN_LINE: tuple[Role, ...] = ("user", "assistant", "tool")


def turn_of(*messages: Message, reply: Message | None = None, tools: tuple[Tool, ...] = ()) -> Turn:
    return Turn(
        session="s",
        index=0,
        parent=None,
        kind="main",
        created_at=0.0,
        finished_at=1.0,
        dialect="chat",
        model="m",
        messages=messages or (said("user", "hi"),),
        tools=tools,
        sampling=Sampling(max_tokens=1),
        prompt_ids=(1,),
        completion=Completion(
            token_ids=(2,), logprobs=(-0.1,), finish_reason="stop", version_spans=(VersionSpan("v0", 0, 1),)
        ),
        message=reply or said("assistant", "hello"),
        request_digest="d",
        chain="c",
    )


def followed_by(*messages: Message) -> NextState:
    return NextState(session="s", index=0, messages=messages, arrived_at=2.0)


def built(turn: Turn, *following: Message, max_chars: int = 8000) -> Evidence:
    evidence = build_evidence(turn, followed_by(*following), (), main_line=MAIN_LINE, max_chars=max_chars)
    assert evidence is not None
    return evidence


def test_request_history_reply_and_all_that_followed() -> None:
    loop = (called("run"), said("tool", "ok", tool_call_id="c1"))
    reply = said("assistant", "done", reasoning="easy")
    turn = turn_of(said("system", "be kind"), said("user", "a"), said("assistant", "b"), said("user", "c"), *loop,
                   reply=reply, tools=(Tool(name="run"),))  # fmt: skip
    evidence = built(turn, said("tool", "1"), said("tool", "2"), said("user", "thanks"))
    assert [m.content for m in evidence.history] == ["be kind", "a", "b"]
    assert evidence.request == (said("user", "c"), *loop)
    assert evidence.reply == reply
    assert [m.content for m in evidence.following] == ["1", "2", "thanks"]
    assert evidence.tools == turn.tools


def test_only_roles_of_the_main_line_count() -> None:
    state = followed_by(said("tool", "ok"), said("system", "note"))
    assert build_evidence(turn_of(), state, (), main_line=("user", "assistant"), max_chars=100) is None
    evidence = build_evidence(turn_of(), state, (), main_line=MAIN_LINE, max_chars=100)
    assert evidence is not None
    assert [m.role for m in evidence.following] == ["tool"]


def test_side_roles_are_shown_beside_feedback_and_tool_results_are_feedback() -> None:
    def roles(*following: Message) -> list[str]:
        seeds = {"main_line": ("user", "assistant"), "side": ("system", "tool")}
        evidence = build_evidence(turn_of(), followed_by(*following), (), max_chars=100, **seeds)  # type: ignore[arg-type]
        return [] if evidence is None else [m.role for m in evidence.following]

    assert roles(said("tool", "exit 1")) == ["tool"]
    assert roles(said("system", "note"), said("user", "no")) == ["system", "user"]
    assert roles(said("system", "note")) == []


def test_nothing_followed() -> None:
    assert build_evidence(turn_of(), None, (), main_line=MAIN_LINE, max_chars=100) is None


def test_feedback_counts_where_it_is_about_this_turn() -> None:
    elsewhere = Feedback(session="s", index=1, user="u", given_at=0.0, score=1)
    assert build_evidence(turn_of(), None, (elsewhere,), main_line=MAIN_LINE, max_chars=100) is None
    evidence = build_evidence(turn_of(), None, (elsewhere, thumbs(-1)), main_line=MAIN_LINE, max_chars=100)
    assert evidence is not None
    assert evidence.feedback == (thumbs(-1),)


def test_a_conversation_without_a_user_is_all_request() -> None:
    evidence = built(turn_of(said("system", "s"), said("assistant", "a")), said("user", "x"))
    assert [m.role for m in evidence.request] == ["system", "assistant"]
    assert evidence.history == ()


def test_long_texts_are_clipped_in_the_middle() -> None:
    text = "begin" + "x" * 5000 + "end"
    evidence = built(turn_of(said("user", text), reply=said("assistant", text, reasoning=text)), said("user", text),
                     max_chars=300)  # fmt: skip
    for short in (evidence.request[0].content, evidence.reply.content, evidence.reply.reasoning):
        assert len(short) == 300
        assert short.startswith("begin")
        assert short.endswith("end")
        assert "characters left out" in short


def test_the_tail_of_the_history_survives_and_says_what_is_missing() -> None:
    old = [said("user" if i % 2 == 0 else "assistant", f"{i}:" + "y" * 90) for i in range(40)]
    evidence = built(turn_of(said("system", "S" * 999), *old, said("user", "now")), said("user", "x"), max_chars=800)
    system, note, *rest = evidence.history
    assert system.role == "system"
    assert len(system.content) == 100
    assert note.content == f"[{40 - len(rest)} messages left out here]"
    assert rest == old[-len(rest) :]
    assert len(rest) == 7
    assert sum(len(m.content) for m in evidence.history) <= 800


def test_one_long_message_does_not_fill_the_history() -> None:
    pasted = said("user", "p" * 5000)
    evidence = built(turn_of(said("user", "a"), pasted, said("user", "now")), said("user", "x"), max_chars=800)
    assert [len(m.content) for m in evidence.history] == [1, 200]


def test_many_tool_results_share_the_room_and_the_user_does_not_lose_by_it() -> None:
    results = [said("tool", "r" * 9000) for _ in range(10)]
    evidence = built(turn_of(), *results, said("user", "u" * 3000), max_chars=4000)
    assert len(evidence.following) == 11
    assert all(len(m.content) == 400 for m in evidence.following[:10])
    assert evidence.following[-1].content == "u" * 3000


def test_a_long_agent_loop_keeps_the_question_and_its_own_tail() -> None:
    loop = [said("tool", f"{i:02d}" * 200) for i in range(50)]
    evidence = built(turn_of(said("user", "question"), *loop), said("user", "x"), max_chars=2000)
    question, note, *tail = evidence.request
    assert question.content == "question"
    assert "left out here" in note.content
    assert tail[-1].content == loop[-1].content
    assert sum(len(m.content) for m in tail) <= 2000


def test_thoughts_of_earlier_answers_are_left_out() -> None:
    earlier = said("assistant", "b", reasoning="hmm")
    evidence = built(turn_of(said("user", "a"), earlier, said("user", "c")), said("user", "x"))
    assert [m.reasoning for m in evidence.history] == ["", ""]


messages = st.builds(
    Message, role=st.sampled_from(ROLES), content=st.text(max_size=400), reasoning=st.text(max_size=50)
)


@given(st.lists(messages, min_size=1, max_size=12), st.integers(1, 600))
def test_the_history_never_exceeds_its_room(conversation: list[Message], max_chars: int) -> None:
    evidence = built(turn_of(*conversation), said("user", "x"), max_chars=max_chars)
    assert sum(len(m.content) + len(m.reasoning) for m in evidence.history) <= max_chars
    assert all(len(m.content) <= max(max_chars, 40) for m in evidence.request)
    assert evidence.request[0].role in {"user", conversation[0].role}


@given(st.text(max_size=300), st.integers(0, 300))
def test_clipping_keeps_both_ends_and_the_limit(text: str, limit: int) -> None:
    short = clip(text, limit)
    assert len(short) <= limit or short == text
    assert short == text or len(text) > limit
    assert text.startswith(short[:1])


def line(**changes: object) -> dict[str, Any]:
    return {"request": "hi", "reply": "hello", "next": [{"role": "user", "content": "thanks"}], **changes}


def test_a_line_of_texts() -> None:
    evidence = evidence_from_json(line())
    assert evidence.request == (said("user", "hi"),)
    assert evidence.reply == said("assistant", "hello")
    assert evidence.following == (said("user", "thanks"),)


def test_a_line_of_messages() -> None:
    call = {"id": "c1", "function": {"name": "run", "arguments": "{}"}}
    evidence = evidence_from_json(
        line(
            request=[
                {"role": "system", "content": "s"},
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": [{"type": "text", "text": "second"}]},
            ],
            reply={"role": "assistant", "content": None, "reasoning_content": "hmm", "tool_calls": [call]},
            tools=[{"type": "function", "function": {"name": "run", "description": "runs"}}, {"name": "stop"}],
            feedback=[{"score": -1, "text": "no"}],
        )
    )
    assert [m.content for m in evidence.history] == ["s", "first", "a"]
    assert evidence.request == (said("user", "second"),)
    assert evidence.reply == Message(role="assistant", reasoning="hmm", tool_calls=called("run").tool_calls)
    assert [t.name for t in evidence.tools] == ["run", "stop"]
    assert (evidence.feedback[0].score, evidence.feedback[0].text) == (-1, "no")


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ([], "a line is an object with request, reply and next; got a list"),
        ({"reply": "x"}, "request is missing"),
        ({"request": "x"}, "reply is missing"),
        (line(nxt=[]), "unknown key 'nxt'"),
        (line(request=[]), "request is empty"),
        (line(request=3), "request is a text or a message {role, content}; got a int"),
        (line(reply={"role": "user", "content": "x"}), "reply is what the assistant said; got role 'user'"),
        (line(next=[]), "next is empty"),
        (line(next="thanks"), "next is a list; got a text"),
        (line(next=["thanks"]), r"next\[0\] is a message {role, content}; got a text"),
        (line(next=[{"role": "human", "content": "x"}]), r"next\[0\].role is one of system, user, assistant, tool"),
        (line(next=[{"role": "user", "content": 3}]), r"next\[0\].content is a text; got a int"),
        (line(reply={"tool_calls": [{}]}), r"reply.tool_calls\[0\] is"),
        (line(tools=[{}]), r"tools\[0\] is"),
        (line(tools=[{"name": "a", "parameters": 3}]), r"tools\[0\].parameters is a JSON schema"),
        (line(feedback=[{"score": 5}]), r"feedback\[0\].score is -1, 0 or 1; got 5"),
        (line(feedback=[{}]), r"feedback\[0\] needs a score or a text"),
        (line(feedback=[True]), r"feedback\[0\] is {score, text}; got a truth value"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(raw: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        evidence_from_json(raw)

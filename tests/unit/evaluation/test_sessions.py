"""One conversation of a simulated user, and how many it takes until first replies are good."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.chat import ChatFailed, Reply
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.sessions import SessionExchange, SessionRecord, run_session
from openclaw_rl.evaluation.users import Brief, Reaction
from tests.fakes.people import Asked, FunctionChat

RAIN = Question(kind="open", topic="rain", text="Why does it rain?")
SHORT = "Rain falls when drops in clouds grow heavy."
LONG = " ".join(f"Rain number {i} falls from cloud {i * 7} onto hill {i * 31}." for i in range(9))


def improving(asked: Asked) -> Reply:
    """Long at first; short once somebody complained."""
    complained = len(asked.messages) > 1
    return Reply(text=SHORT if complained else LONG, version="v1", turn_id=f"t.{len(asked.messages)}", num_tokens=9)


async def test_a_session_goes_on_until_the_user_is_content() -> None:
    chat = FunctionChat(improving)
    record = await run_session(chat, Brief(), RAIN, session="s1", model="m@v1")
    assert [e.reaction.kind for e in record.exchanges] == ["style", "content"]
    assert [e.reply.text for e in record.exchanges] == [LONG, SHORT]
    assert record.exchanges[0].said == RAIN.text
    assert record.exchanges[1].said == record.exchanges[0].reaction.message
    assert record.first_score < 0.2
    assert record.exchanges[1].score == 1.0
    assert (record.first_reply_ok, record.is_content, len(record.exchanges)) == (False, True, 2)
    assert [a.closing for a in chat.asked] == [False, False, True]
    assert {(a.session, a.model) for a in chat.asked} == {("s1", "m@v1")}
    thanked = chat.asked[-1].messages
    assert [m.role for m in thanked] == ["user", "assistant", "user", "assistant", "user"]
    assert thanked[-1].content == record.exchanges[1].reaction.message
    assert thanked[3].content == SHORT


async def test_a_good_first_reply_ends_it() -> None:
    chat = FunctionChat(lambda asked: SHORT)
    record = await run_session(chat, Brief(), RAIN, session="s")
    assert (record.first_reply_ok, record.is_content, len(record.exchanges)) == (True, True, 1)
    assert len(chat.asked) == 2


@pytest.mark.parametrize("max_turns", [1, 3])
async def test_a_session_ends_after_max_turns_and_the_last_complaint_is_sent(max_turns: int) -> None:
    chat = FunctionChat(lambda asked: LONG)
    record = await run_session(chat, Brief(), RAIN, session="s", max_turns=max_turns)
    assert [e.reaction.is_content for e in record.exchanges] == [False] * max_turns
    assert not record.is_content
    assert len(chat.asked) == max_turns + 1
    assert chat.asked[-1].last == record.exchanges[-1].reaction.message
    assert chat.asked[-1].closing


async def test_a_user_who_says_nothing_more_sends_nothing_more() -> None:
    class Silent(Brief):
        def react(self, question: Question, reply: str, turn: int) -> Reaction:
            return Reaction(kind="style", message="", done=True)

    chat = FunctionChat(lambda asked: LONG)
    record = await run_session(chat, Silent(), RAIN, session="s")
    assert len(chat.asked) == len(record.exchanges) == 1
    assert not record.first_reply_ok


async def test_a_chat_that_fails_ends_the_session() -> None:
    def broken(asked: Asked) -> str:
        raise ChatFailed("gone")

    with pytest.raises(ChatFailed, match="gone"):
        await run_session(FunctionChat(broken), Brief(), RAIN, session="s")
    with pytest.raises(ValueError, match="max_turns"):
        await run_session(FunctionChat(lambda asked: SHORT), Brief(), RAIN, session="s", max_turns=0)


async def test_a_record_is_a_line_of_json() -> None:
    record = await run_session(FunctionChat(improving), Brief(), RAIN, session="s1")
    line = record.to_json()
    assert (line["session"], line["user"], line["question"], line["kind"]) == ("s1", "brief", RAIN.text, "open")
    assert (line["first_reply_ok"], line["is_content"]) == (False, True)
    assert line["first_score"] == record.first_score
    assert line["exchanges"][1] == {
        "said": record.exchanges[1].said,
        "reply": SHORT,
        "version": "v1",
        "turn": "t.3",
        "num_tokens": 9,
        "score": 1.0,
        "reaction": "content",
    }


def test_a_record_is_whole() -> None:
    with pytest.raises(ValueError, match="at least one reply"):
        SessionRecord(session="s", user="u", question=RAIN, exchanges=())
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        SessionExchange(said="", reply=Reply(text=""), score=1.5, reaction=Reaction(kind="style", message=""))

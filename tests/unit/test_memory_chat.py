"""The memory baseline: what it notes, and that the notes are in the next request."""

from __future__ import annotations

from benchmarks.memory_chat import HEADING, MemoryChat
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.sessions import run_session
from openclaw_rl.evaluation.users import Brief, Plain
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.types import Message
from tests.fakes.people import Asked, FunctionChat

RAIN = Question(kind="open", topic="rain", text="Why does it rain?")
BEES = Question(kind="open", topic="bees", text="How do bees make honey?")
LONG = " ".join(f"Rain number {i} falls from cloud {i * 7} onto bees {i * 31}." for i in range(9))


def obedient(asked: Asked) -> str:
    """Does what the system prompt says, and nothing else."""
    told = asked.messages[0].content if asked.messages[0].role == "system" else ""
    return "Bees carry nectar home when rain clouds leave." if "one short sentence" in told.lower() else LONG


def test_nothing_is_added_before_anything_was_learned() -> None:
    assert MemoryChat(FunctionChat(obedient), RulesJudge()).system_prompt == ""


async def test_a_preference_is_followed_from_the_next_reply_on() -> None:
    behind = FunctionChat(obedient)
    chat = MemoryChat(behind, RulesJudge())
    first = await run_session(chat, Brief(), RAIN, session="one")
    assert [e.reaction.is_content for e in first.exchanges] == [False, True]
    assert "one short sentence" in chat.notes[0].lower()
    second = await run_session(chat, Brief(), BEES, session="two")
    assert second.first_reply_ok
    opening = next(a for a in behind.asked if a.session == "two")
    assert [m.role for m in opening.messages] == ["system", "user"]
    assert opening.messages[0].content == chat.system_prompt
    assert opening.messages[0].content.startswith(HEADING)
    assert "one short sentence" in opening.messages[0].content.lower()
    assert behind.asked[0].messages[0].role == "user"
    assert [a.closing for a in behind.asked] == [False, False, True, False, True]


async def test_a_system_prompt_of_the_caller_stays_first() -> None:
    behind = FunctionChat(obedient)
    chat = MemoryChat(behind, RulesJudge())
    talk = [
        Message(role="system", content="You are Ada."),
        Message(role="user", content=RAIN.text),
        Message(role="assistant", content=LONG),
        Message(role="user", content="Please answer in one short sentence."),
    ]
    await chat.reply(talk, session="s", model="m@v2", closing=True)
    sent = behind.asked[0]
    assert sent.messages[0].content == f"You are Ada.\n\n{HEADING}\n- Please answer in one short sentence."
    assert [m.role for m in sent.messages] == ["system", "user", "assistant", "user"]
    assert (sent.session, sent.model, sent.closing) == ("s", "m@v2", True)


async def test_praise_leaves_no_note() -> None:
    chat = MemoryChat(FunctionChat(obedient), RulesJudge())
    said = ("user", RAIN.text), ("assistant", LONG), ("user", "Perfect, thanks!")
    await chat.reply([Message(role=role, content=text) for role, text in said], session="s")  # type: ignore[arg-type]
    assert chat.notes == ()


async def test_what_is_said_again_is_one_note_and_the_newest_stay() -> None:
    chat = MemoryChat(FunctionChat(lambda asked: LONG), RulesJudge(), max_notes=2)
    for wish in ("Answer in one short sentence.", "Please answer in one short sentence!", *Plain.complaints[:3]):
        talk = ("user", RAIN.text), ("assistant", LONG), ("user", wish)
        await chat.reply([Message(role=role, content=text) for role, text in talk], session="s")  # type: ignore[arg-type]
        if "short" in wish:
            assert chat.notes == (wish,)
    assert len(chat.notes) == 2
    assert not any("short" in note for note in chat.notes)

"""Student, teaching assistant and teacher: the tasks, who plays them, the files, and what counts of a first reply."""

from __future__ import annotations

import json

import pytest

from openclaw_rl.evaluation.cast import ROLES, STUDENT, TA, TEACHER, Role, Task, load_tasks
from openclaw_rl.evaluation.chat import Reply
from openclaw_rl.evaluation.detectors import is_correct
from openclaw_rl.evaluation.roles import ModelSimulator, Workspace, run_role, run_roles, stability
from openclaw_rl.judge.rules import RulesJudge
from openclaw_rl.types import Evidence, Message, ToolCall
from tests.unit.evaluation.people import Asked, FunctionChat

TASKS = load_tasks()
ROLLS = TASKS[0]
BUS = TASKS[1]
PLAIN = "Four trays with 12 rolls are 48 rolls. She sells 30, so 18 rolls are left."
MARKED = "**Solution:**\n1. 4 * 12 = 48 rolls.\n2. 48 - 30 = 18 rolls."
GRADED = (
    "The pupil starts well by adding the 14 people who get on to the 23 who were there, which gives 37. The next is "
    "wrong, however: 37 minus 9 is 28 and not 26, so there is a mistake in the subtraction. Writing the subtraction "
    "below one another, or checking it with the addition 26 plus 9, would have shown this at once. The order of the "
    "steps is sensible and the text is easy to follow, and the unit is named at the end as it should be. Practise "
    "subtraction across the tens."
)
KIND = "Great job setting this up! There is a small mistake in 37 minus 9; check it again next time, you can do it!"


def test_the_tasks_are_right() -> None:
    assert len(TASKS) >= 18
    assert 4 <= sum(not t.is_right for t in TASKS) <= len(TASKS) // 2
    for task in TASKS:
        assert is_correct(task.submission, task.answer) == task.is_right, task
    assert len({t.problem for t in TASKS}) == len(TASKS)


@pytest.mark.parametrize("role", ROLES)
def test_an_opening_does_not_tell_the_wish(role: Role) -> None:
    opening = role.opening.lower()
    for told in ("bold", "list", "detail", "specific", "friendly", "warm", "patient"):
        assert told not in opening


@pytest.mark.parametrize("role", ROLES)
def test_the_rules_judge_understands_the_scripted_roles(role: Role) -> None:
    def score(said: str) -> int | None:
        return (
            RulesJudge()
            .verdict(
                Evidence(
                    request=(Message(role="user", content=role.opening.format(material=role.material(BUS))),),
                    reply=Message(role="assistant", content="It is fine."),
                    following=(Message(role="user", content=said),),
                )
            )
            .score
        )

    assert [score(said) for said in role.restyle] == [-1] * len(role.restyle)
    assert score(role.append) == 1


@pytest.mark.parametrize(
    ("role", "task", "text", "style", "correct", "complete"),
    [
        (STUDENT, ROLLS, PLAIN, True, True, True),
        (STUDENT, ROLLS, MARKED, False, True, True),
        (STUDENT, ROLLS, "18", True, True, False),
        (STUDENT, ROLLS, "48 rolls. 48 - 40 = 8 are left.", True, False, True),
        (STUDENT, ROLLS, "Final answer: 18 rolls. It is 48 minus 30.", False, True, True),
        (STUDENT, ROLLS, "", False, False, False),
        (TA, BUS, GRADED, True, True, True),
        (TA, BUS, "That is wrong.", False, True, False),
        (TA, BUS, "The answer 26 is correct, since 37 minus 9 is 26.", False, False, True),
        (TA, BUS, "This is wrong. " * 40, False, True, False),
        (TEACHER, BUS, KIND, True, True, True),
        (TEACHER, BUS, GRADED, False, True, True),
        (TEACHER, BUS, "Great job, well done! Everything is correct!", True, False, False),
        (TEACHER, ROLLS, "Great job, all of it is correct! Next time, try to name the units.", True, True, True),
    ],
)
async def test_what_counts_of_a_first_reply(
    role: Role, task: Task, text: str, style: bool, correct: bool, complete: bool
) -> None:
    record = await run_role(FunctionChat(lambda asked: text), role, task, session="s", max_turns=1)
    assert (record.style, record.correct, record.complete) == (style, correct, complete)
    assert record.is_good == (style and correct and complete)
    assert (record.read, record.wrote) == (None, None)


async def test_many_tokens_that_nobody_sees_are_no_detail() -> None:
    reply = Reply(text="That is wrong." + "<|im_end|>" * 150, num_tokens=154)
    record = await run_role(FunctionChat(lambda asked: reply), TA, BUS, session="s", max_turns=1)
    assert not record.style
    assert TA.style(Reply(text=GRADED, num_tokens=100))
    assert not TA.style(Reply(text=GRADED, num_tokens=99))


async def test_a_scripted_role_complains_then_asks_to_append_then_ends() -> None:
    chat = FunctionChat(lambda asked: MARKED if len(asked.messages) == 1 else PLAIN)
    record = await run_role(chat, STUDENT, ROLLS, session="s")
    said = [asked.last for asked in chat.asked]
    assert said[0].startswith(f"Problem: {ROLLS.problem}")
    assert said[1] in STUDENT.restyle
    assert said[2] == STUDENT.append
    assert len(said) == record.num_turns == 3
    assert record.finished
    assert record.first_reply.text == MARKED
    assert not record.style


async def test_a_role_that_never_gets_its_wish_is_over_after_eight_turns() -> None:
    chat = FunctionChat(lambda asked: MARKED)
    record = await run_role(chat, STUDENT, ROLLS, session="s")
    assert (record.num_turns, record.finished) == (8, False)
    assert len({a.last for a in chat.asked[1:]}) == len(STUDENT.restyle)


def call(name: str, arguments: str) -> Reply:
    return Reply(text="", tool_calls=(ToolCall(id="c1", name=name, arguments=arguments),))


def with_tools(asked: Asked) -> Reply | str:
    last = asked.messages[-1]
    if last.role == "user" and "append" in last.content:
        return call("append_to_file", json.dumps({"path": ROLLS.path, "text": PLAIN}))
    if last.role == "user":
        return call("read_file", json.dumps({"path": ROLLS.path}))
    return PLAIN if last.content.startswith("Problem") else "Appended."


async def test_with_files_the_task_is_in_a_file_and_reading_it_counts() -> None:
    chat = FunctionChat(with_tools)
    record = await run_role(chat, STUDENT, ROLLS, session="s", with_files=True)
    assert ROLLS.problem not in chat.asked[0].last
    assert ROLLS.path in chat.asked[0].last
    assert [t.name for t in chat.asked[0].tools] == ["read_file", "append_to_file"]
    result = chat.asked[1].messages[-1]
    assert (result.role, result.tool_call_id, result.name) == ("tool", "c1", "read_file")
    assert result.content == STUDENT.material(ROLLS)
    assert record.first_reply.text == PLAIN
    assert (record.read, record.wrote, record.finished, record.is_good) == (True, True, True, True)


async def test_a_reply_that_never_read_the_file_is_not_good() -> None:
    record = await run_role(FunctionChat(lambda asked: PLAIN), STUDENT, ROLLS, session="s", with_files=True)
    assert (record.style, record.correct, record.complete) == (True, True, True)
    assert (record.read, record.wrote, record.is_good) == (False, False, False)


async def test_calls_without_end_do_end() -> None:
    chat = FunctionChat(lambda asked: call("read_file", '{"path": "nowhere"}') if asked.tools else "Sorry.")
    record = await run_role(chat, STUDENT, ROLLS, session="s", with_files=True, max_turns=1)
    assert record.first_reply.text == "Sorry."
    assert record.read is False
    assert len(chat.asked) == 7


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("read_file", '{"path": "a.txt"}', "text"),
        ("append_to_file", '{"path": "a.txt", "text": "more"}', "Done."),
        ("read_file", '{"path": "b.txt"}', "Error: no such file: b.txt"),
        ("read_file", "{}", "Error: the arguments cannot be read (KeyError('path'))"),
        ("append_to_file", '{"path": "a.txt"}', "Error: the arguments cannot be read (KeyError('text'))"),
        ("remove", '{"path": "a.txt"}', "Error: there is no tool remove"),
        ("read_file", "[1]", None),
        ("read_file", "{broken", None),
    ],
)
def test_the_files_answer_every_call(name: str, arguments: str, result: str | None) -> None:
    workspace = Workspace(texts={"a.txt": "text"})
    got = workspace.run(ToolCall(id="c", name=name, arguments=arguments))
    assert got == result if result else got.startswith("Error: the arguments cannot be read")
    assert workspace.texts["a.txt"] == ("text\nmore" if result == "Done." else "text")
    assert workspace.read == ({"a.txt"} if result == "text" else set())
    assert workspace.appended == ({"a.txt"} if result == "Done." else set())


async def test_a_model_plays_the_role_from_the_other_side() -> None:
    said = iter(("<think>too marked</think>No lists please.", "Now append it.", "Thanks! HOMEWORK_DONE"))
    simulator = FunctionChat(lambda asked: next(said))
    chat = FunctionChat(lambda asked: PLAIN)
    record = await run_role(chat, STUDENT, ROLLS, session="s", simulator=ModelSimulator(simulator))
    assert [a.last for a in chat.asked[1:]] == ["No lists please.", "Now append it."]
    assert (record.finished, record.num_turns) == (True, 3)
    seen = simulator.asked[1].messages
    assert [m.role for m in seen] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert STUDENT.wish in seen[0].content
    assert STUDENT.done in seen[0].content
    assert ROLLS.path in seen[0].content
    assert seen[2].content == chat.asked[0].last
    assert seen[3].content == f"The AI assistant replied: {PLAIN}"
    assert {a.session for a in simulator.asked} == {"s-simulator"}


async def test_a_simulator_that_falls_silent_ends_the_session_unfinished() -> None:
    simulator = ModelSimulator(FunctionChat(lambda asked: "<think>no idea"))
    record = await run_role(FunctionChat(lambda asked: PLAIN), STUDENT, ROLLS, session="s", simulator=simulator)
    assert (record.finished, record.num_turns) == (False, 1)


@pytest.mark.parametrize(
    ("jointly", "order"),
    [
        (True, ["student-1", "ta-1", "teacher-1", "student-2", "ta-2", "teacher-2"]),
        (False, ["student-1", "student-2", "ta-1", "ta-2", "teacher-1", "teacher-2"]),
    ],
)
async def test_roles_take_turns(jointly: bool, order: list[str]) -> None:
    records = await run_roles(FunctionChat(lambda asked: PLAIN), TASKS[:2], run="r", jointly=jointly, max_turns=1)
    assert [r.session for r in records] == [f"r-{name}" for name in order]


async def test_stability_by_style_and_by_whole_answers() -> None:
    def learning(asked: Asked) -> str:
        number = int(asked.session.rpartition("-")[2])
        return MARKED if number < 3 else "It is easy." if number < 5 else f"One way. {TASKS[number - 1].submission}"

    records = await run_roles(FunctionChat(learning), TASKS, run="r", roles=(STUDENT,), max_turns=1)
    assert str(stability(records, "student", cap=18)) == "3"
    assert str(stability(records, "student", cap=18, strictly=True)) == str(_first_three_right())
    assert str(stability(records, "teacher", cap=18)) == ">18"


def _first_three_right() -> int:
    """From task 5 on the reply is what the pupil handed in: good where that was right."""
    return next(n for n in range(5, 17) if all(TASKS[n - 1 + i].is_right for i in range(3)))

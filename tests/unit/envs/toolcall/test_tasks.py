"""Goals of tasks, and solved problems shown as a conversation."""

from __future__ import annotations

import pytest

from openclaw_rl.envs.toolcall.answers import Check
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Called, CallGoal, Deeds, Problem, calls_of, demonstrate
from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR
from openclaw_rl.types import Message

BOOK = CallGoal(
    name="book", arguments={"city": "New York", "nights": 3, "tags": ["sea"]}, defaults={"breakfast": False}
)


def booked(**arguments: object) -> Deeds:
    return Deeds(calls=(Called(name="book", arguments=arguments),))


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "New York", "nights": 3, "tags": ["sea"]},
        {"city": "new york.", "nights": 3.0, "tags": ["Sea"]},
        {"city": "New York", "nights": 3, "tags": ["sea"], "breakfast": False},
    ],
)
async def test_a_call_counts_by_its_function_and_arguments(arguments: dict[str, object]) -> None:
    assert (await BOOK.read(booked(**arguments))).share == 1.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"city": "York", "nights": 3, "tags": ["sea"]}, 'city="York"'),
        ({"city": "New York", "nights": 4, "tags": ["sea"]}, "nights=4"),
        ({"city": "New York", "nights": True, "tags": ["sea"]}, "nights=true"),
        ({"city": "New York", "nights": 3, "tags": ["sea", "sun"]}, "tags="),
        ({"city": "New York", "nights": 3, "tags": "sea"}, "tags="),
        ({"city": "New York", "tags": ["sea"]}, "nights (left out)"),
        ({"city": "New York", "nights": 3, "tags": ["sea"], "breakfast": True}, "breakfast=true"),
    ],
)
async def test_a_wrong_argument_is_named_and_the_right_one_is_not(arguments: dict[str, object], said: str) -> None:
    marked = await BOOK.read(booked(**arguments))
    assert marked.share == 0.0
    assert said in marked.report
    assert "New York" not in marked.report


async def test_another_function_or_none_is_not_what_was_asked() -> None:
    marked = await BOOK.read(Deeds(calls=(Called(name="cancel", arguments={}),)))
    assert (marked.share, "cancel" in marked.report) == (0.0, True)
    assert (await BOOK.read(Deeds(answer="New York, 3 nights"))).share == 0.0


async def test_an_answer_is_compared_and_the_right_one_never_told() -> None:
    goal = AnswerGoal(reference="4711", check=Check(name="number"))
    assert (await goal.read(Deeds(answer="It is 4711."))).share == 1.0
    wrong = await goal.read(Deeds(answer="4712"))
    assert (wrong.share, "4712" in wrong.report, "4711" in wrong.report) == (0.0, True, False)
    assert (await goal.read(Deeds())).report == "No answer was given."


def test_a_solved_problem_is_a_conversation() -> None:
    calls = calls_of((CALCULATOR.tool.name, {"expression": "2 + 3"}), (SUBMIT.name, {"answer": "5"}))
    goal = AnswerGoal(reference="5", check=Check())
    asked, called, result, said = demonstrate(
        [Problem(question="2 + 3?", goal=goal, solution=calls, tools=(CALCULATOR,))]
    )
    assert asked == Message(role="user", content="2 + 3?")
    assert [call.arguments for call in called.tool_calls] == ['{"expression": "2 + 3"}']
    assert (result.role, result.content, result.tool_call_id) == ("tool", "5", called.tool_calls[0].id)
    assert said == Message(role="assistant", content="The answer is 5.")

"""Every family at every level: its own solution is accepted, another answer is not, and splits stay apart."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain, pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.envs.toolcall.answers import Check
from openclaw_rl.envs.toolcall.families.calls import functions
from openclaw_rl.envs.toolcall.families.convert import quantities
from openclaw_rl.envs.toolcall.families.family import TaskFamily, make_set
from openclaw_rl.envs.toolcall.families.lookup import tables
from openclaw_rl.envs.toolcall.families.registry import FAMILIES
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Called, Deeds, Problem, ToolTask
from openclaw_rl.envs.toolcall.tools.arguments import read_arguments
from openclaw_rl.errors import TaskError

LEVELS = [(family, level) for family in FAMILIES.values() for level in range(1, family.num_levels + 1)]
EVERY_LEVEL = pytest.mark.parametrize(
    ("family", "level"), LEVELS, ids=[f"{family.name}-{level}" for family, level in LEVELS]
)
PROBLEMS = [Problem(question=f"{number}?", goal=AnswerGoal(reference="", check=Check())) for number in range(3)]


def tasks_of(family: TaskFamily, level: int, *, seed: int = 0, num: int = 60, shots: int = 2) -> list[ToolTask]:
    return make_set(family, level=level, seed=seed, num_train=num, num_held_out=num // 2, shots=shots)


def done(task: ToolTask) -> Deeds:
    """What whoever follows the solution leaves behind; each call is checked and made as an agent's would be."""
    tools = {own.tool.name: own for own in task.problem.tools}
    deeds = Deeds()
    said = ""
    for call in task.problem.solution:
        if call.name == SUBMIT.name:
            answer = read_arguments(SUBMIT, call.arguments)["answer"]
            assert answer == said, "the answer is what the last call gave"
            deeds = replace(deeds, answer=answer)
        else:
            arguments = read_arguments(tools[call.name].tool, call.arguments)
            said = tools[call.name].function(arguments)
            deeds = replace(deeds, calls=(*deeds.calls, Called(name=call.name, arguments=arguments)))
    return deeds


@EVERY_LEVEL
async def test_the_solution_is_accepted_and_nothing_else(family: TaskFamily, level: int) -> None:
    for task in tasks_of(family, level):
        goal, deeds = task.problem.goal, done(task)
        assert (await goal.read(deeds)).share == 1.0
        assert (await goal.read(Deeds())).share == 0.0
        if deeds.answer is not None:
            for wrong in (f"9{deeds.answer}", "-12345.678", "1999-12-12345", "nothing", ""):
                assert (await goal.read(replace(deeds, answer=wrong))).share == 0.0
        else:
            call = deeds.calls[-1]
            others = [replace(call, name="other"), *(replace(call, arguments=a) for a in _changed(call))]
            for other in others:
                assert (await goal.read(Deeds(calls=(other,)))).share == 0.0


def _changed(call: Called) -> list[dict[str, object]]:
    """The arguments with one of them wrong, and with one of them left out."""
    return [
        *(
            {**call.arguments, name: f"{value}x" if isinstance(value, str) else -1}
            for name, value in call.arguments.items()
        ),
        *({name: value for name, value in call.arguments.items() if name != left_out} for left_out in call.arguments),
    ]


@EVERY_LEVEL
def test_the_same_seed_makes_the_same_tasks(family: TaskFamily, level: int) -> None:
    def asked(tasks: list[ToolTask]) -> list[tuple[object, ...]]:
        return [(task.name, task.split, task.problem.question, task.problem.solution) for task in tasks]

    first = asked(tasks_of(family, level))
    assert first == asked(tasks_of(family, level, shots=0))
    more = {task[0]: task for task in asked(tasks_of(family, level, num=80))}
    assert all(more[task[0]] == task for task in first), "a task stays what it is in a larger set"
    assert first != asked(tasks_of(family, level, seed=1))


@EVERY_LEVEL
def test_train_and_held_out_have_no_question_in_common(family: TaskFamily, level: int) -> None:
    tasks = tasks_of(family, level, num=200, shots=0)
    asked = {split: {task.problem.question for task in tasks if task.split == split} for split in ("train", "held_out")}
    assert len(asked["train"]) > 100
    assert not asked["train"] & asked["held_out"]
    assert len({task.name for task in tasks}) == len(tasks)
    pairs = [(task.problem.question, task.problem.solution) for task in tasks]
    assert len(set(pairs)) == len(pairs)


@EVERY_LEVEL
def test_examples_are_solved_problems_with_the_same_tools(family: TaskFamily, level: int) -> None:
    for task in tasks_of(family, level, num=20, shots=3):
        names = {own.tool.name for own in task.problem.tools}
        called = {call.name for message in task.shots for call in message.tool_calls}
        assert called <= names
        assert sum(message.role == "user" for message in task.shots) == 3
        assert task.shots[-1].role == "assistant"
        assert task.shots[-1].content
        assert task.problem.question not in {message.content for message in task.shots}
        roles = [message.role for message in task.shots]
        assert all(one != "user" or other == "assistant" for one, other in pairwise(roles))


def test_what_is_held_out_is_other_functions_tables_and_units() -> None:
    parts = [(each.split, each.tool.name) for each in functions()] + [(each.split, each.tool) for each in tables()]
    parts += [(split, unit) for split, by_name in quantities().items() for unit in chain(*by_name.values())]
    train = {name for split, name in parts if split == "train"}
    held_out = {name for split, name in parts if split == "held_out"}
    assert not train & held_out
    assert len([each for each in functions() if each.split == "train"]) == 20
    assert len([each for each in functions() if each.split == "held_out"]) == 10


def test_every_function_names_each_of_its_values_in_every_question() -> None:
    for function in functions():
        required = function.tool.parameters["required"]
        for asked in function.asked:
            assert all(f"{{{name}}}" in asked for name in required), asked


@given(st.integers(0, 2**32), st.sampled_from(LEVELS))
def test_any_seed_makes_tasks_whose_solutions_fit_their_tools(seed: int, which: tuple[TaskFamily, int]) -> None:
    family, level = which
    for task in make_set(family, level=level, seed=seed, num_train=2, num_held_out=2, shots=1):
        assert done(task).calls
        assert json.dumps([own.tool.to_json() for own in task.problem.tools])


def test_a_level_that_is_none_and_too_many_tasks_are_told() -> None:
    with pytest.raises(TaskError, match="sums has the levels 1 to 3, not 4"):
        tasks_of(FAMILIES["sums"], 4)
    tiny = replace(FAMILIES["sums"], make=lambda draw, split, level: repeat(PROBLEMS[draw.randrange(3)]))
    assert len(tasks_of(tiny, 1, num=3, shots=0)) == 4
    with pytest.raises(TaskError, match="sums has about 3 different problems at level 1; ask for fewer than 4"):
        tasks_of(tiny, 1, num=4, shots=0)


def test_another_system_message_may_open_the_tasks() -> None:
    usual, other = (
        make_set(FAMILIES["sums"], level=1, seed=0, num_train=1, num_held_out=0, shots=0, system=system)[0].system
        for system in ("", "Be quick.")
    )
    assert usual.startswith("You solve tasks with tools.")
    assert other == "Be quick."

"""Whether a task can train anybody, as rooms of any track tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from openclaw_rl.envs.checking import check_task
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Grade, Message, Observation, Opening, Ran, Task, TaskRef, TaskSource, ToolCall

REF = TaskRef(environment="played", source="", name="one")
ALL, NOTHING = Grade(reward=1.0, share=1.0), Grade(reward=-1.0, share=0.0, report="nothing is there")
GOOD = (NOTHING, ALL, NOTHING, ALL)


class PlayedEnvironment:
    """Each of its rooms is graded as it was told, one after the other; an error is raised instead."""

    name = "played"

    def __init__(self, grades: Sequence[Grade | Exception]) -> None:
        self.grades: Iterator[Grade | Exception] = iter(grades)
        self.rooms: list[PlayedRoom] = []

    def sources(self) -> Sequence[TaskSource]:
        return ()

    async def tasks(self, source: str) -> Sequence[Task]:
        return ()

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> PlayedRoom:
        self.rooms.append(PlayedRoom(next(self.grades)))
        return self.rooms[-1]


class PlayedRoom:
    def __init__(self, grade: Grade | Exception) -> None:
        self.grade = grade
        self.did: list[str] = []

    async def open(self) -> Opening:
        self.did.append("open")
        return Opening(messages=(Message(role="user", content="x"),))

    async def solve(self) -> None:
        self.did.append("solve")

    async def step(self, call: ToolCall) -> Observation:
        raise AssertionError(call)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        raise AssertionError(command)

    async def evaluate(self) -> Grade:
        self.did.append("evaluate")
        if isinstance(self.grade, Exception):
            raise self.grade
        return self.grade

    async def close(self) -> None:
        self.did.append("close")


async def test_a_good_task_is_tried_twice_each_way_in_rooms_of_their_own() -> None:
    environment = PlayedEnvironment(GOOD)
    checked = await check_task(environment, REF)
    assert (checked.is_good, checked.problem) == (True, "")
    nothing, solved = ["open", "evaluate", "close"], ["open", "solve", "evaluate", "close"]
    assert [room.did for room in environment.rooms] == [nothing, solved, nothing, solved]


HALF = Grade(reward=0.0, share=0.5, report="half is there")
FAILED = Grade(failure="the verifier left no reward")


@pytest.mark.parametrize(
    ("at", "grade", "problem", "report"),
    [
        (0, HALF, "doing nothing earns 0.5 instead of 0", "half is there"),
        (1, HALF, "the author's solution earns 0.5 instead of 1", "half is there"),
        (1, NOTHING, "the author's solution earns 0 instead of 1", "nothing is there"),
        (2, HALF, "doing nothing earns 0.5 instead of 0 the second time", "half is there"),
        (3, HALF, "the author's solution earns 0.5 instead of 1 the second time", "half is there"),
        (0, FAILED, "nothing done cannot be graded: the verifier left no reward", ""),
        (3, FAILED, "the solution cannot be graded the second time: the verifier left no reward", ""),
        (1, TaskError("there is no solution"), "there is no solution", ""),
        (2, EnvError("the box is gone"), "the box is gone (the second time)", ""),
    ],
)
async def test_what_is_wrong_is_the_problem(at: int, grade: Grade | Exception, problem: str, report: str) -> None:
    environment = PlayedEnvironment([*GOOD[:at], grade, *GOOD[at + 1 :]])
    checked = await check_task(environment, REF)
    assert (checked.problem, checked.report, checked.is_good) == (problem, report, False)
    assert [room.did[-1] for room in environment.rooms] == ["close"] * (at + 1)

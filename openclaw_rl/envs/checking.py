"""A task -> whether it can train anybody: nothing done earns nothing, its author's solution earns all, twice the same.

It asks a room, and so any track. It does not know what a task is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.protocols import Environment
from openclaw_rl.types import Grade, TaskRef

_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of a check. `problem` is why the task trains nobody, empty where it may; `report` is what its grader
    said when it went wrong."""

    ref: TaskRef
    seconds: float
    problem: str = ""
    report: str = ""

    @property
    def is_good(self) -> bool:
        return not self.problem


async def check_task(environment: Environment, ref: TaskRef) -> Checked:
    """Each grade comes from a room of its own. Whatever goes wrong in one is the problem, never an exception."""
    began = time.monotonic()
    problem = report = ""
    for number in range(_ROUNDS):
        again = " the second time" if number else ""
        for is_solved in (False, True):
            problem, report = await _check_once(environment, ref, is_solved=is_solved, again=again)
            if problem:
                return Checked(ref=ref, seconds=time.monotonic() - began, problem=problem, report=report)
    return Checked(ref=ref, seconds=time.monotonic() - began)


async def _check_once(environment: Environment, ref: TaskRef, *, is_solved: bool, again: str) -> tuple[str, str]:
    try:
        grade = await _graded(environment, ref, is_solved=is_solved)
    except (TaskError, EnvError) as error:
        return f"{error}{again and f' ({again.strip()})'}", ""
    if grade.failure:
        return (
            f"{'the solution' if is_solved else 'nothing done'} cannot be graded{again}: {grade.failure}",
            grade.report,
        )
    expected = 1.0 if is_solved else 0.0
    if grade.share != expected:
        what = "the author's solution" if is_solved else "doing nothing"
        return f"{what} earns {grade.share:.3g} instead of {expected:g}{again}", grade.report
    return "", ""


async def _graded(environment: Environment, ref: TaskRef, *, is_solved: bool) -> Grade:
    room = await environment.room(ref, gateway="", programs={})
    try:
        await room.open()
        if is_solved:
            await room.solve()
        return await room.evaluate()
    finally:
        await room.close()

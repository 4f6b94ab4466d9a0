"""A JSONL file of questions -> tasks.

    {"question": "How many days has a leap year?", "answer": "366", "checker": "number", "tools": ["python"]}
    {"question": "Which is larger, 9.9 or 9.11?", "answer": "9.9", "checker": "choice", "choices": ["9.9", "9.11"]}

`checker`: exact, number, date, choice or json; where none is named, number for numbers and else exact. `tools`: names
of those that we bring (calculator, python) and of those in the tools JSON. `split`: train or held_out; where none is
named, about every fifth question is held out, chosen by its words. Also: name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.envs.toolcall.answers import Check, CheckName, is_number
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Problem, ToolTask, calls_of
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Split

_HELD_OUT_OF = 5


class _Row(BaseModel):
    """One line."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Annotated[str, Field(min_length=1)]
    answer: str | int | float
    checker: CheckName | None = None
    choices: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    split: Split | None = None
    name: Annotated[str, Field(min_length=1)] | None = None


def read_tasks(path: Path, *, tools: Sequence[str], system: str) -> list[ToolTask]:
    """`tools` is what tasks want that do not say it. `TaskError` names the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    found: dict[str, ToolTask] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        task = _task(line, f"{path}, line {number}", f"line-{number}", tools, system)
        if task.name in found:
            raise TaskError(f"{path}, line {number}: there is a task {task.name!r} already; give it another name")
        found[task.name] = task
    if not found:
        raise TaskError(f"{path} holds no task; a line is such as {{'question': 'What is 2 + 2?', 'answer': '4'}}")
    return list(found.values())


def _task(line: str, where: str, name: str, tools: Sequence[str], system: str) -> ToolTask:
    try:
        row = _Row.model_validate(json.loads(line))
    except ValidationError as error:
        fault = error.errors()[0]
        raise TaskError(f"{where}: {'.'.join(map(str, fault['loc'])) or 'the line'}: {fault['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where} is not JSON: {error}") from None
    reference = str(row.answer)
    check = Check(name=row.checker or ("number" if is_number(reference) else "exact"), choices=row.choices)
    if not check.accepts(reference, reference):
        raise TaskError(f"{where}: its checker, {check.name}, does not accept its own answer, {reference!r}")
    return ToolTask(
        name=row.name or name,
        split=row.split or split_of(row.question),
        problem=Problem(
            question=row.question,
            goal=AnswerGoal(reference=reference, check=check),
            solution=calls_of((SUBMIT.name, {"answer": reference})),
        ),
        system=system,
        wants=tuple(tools if row.tools is None else row.tools),
    )


def split_of(question: str) -> Split:
    """The same for the same words, wherever they stand."""
    return "held_out" if hashlib.sha256(question.encode()).digest()[0] % _HELD_OUT_OF == 0 else "train"

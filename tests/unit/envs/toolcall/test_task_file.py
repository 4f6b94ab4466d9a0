"""Tasks of the user's own, a line of JSON each; a bad line is named with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.envs.toolcall.task_file import read_tasks, split_of
from openclaw_rl.envs.toolcall.tasks import Deeds, ToolTask
from openclaw_rl.errors import TaskError


def read(tmp_path: Path, *rows: object) -> list[ToolTask]:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return read_tasks(path, tools=("calculator",), system="Be exact.")


async def test_each_line_is_a_task(tmp_path: Path) -> None:
    first, second, third = read(
        tmp_path,
        {"question": "Days in a leap year?", "answer": 366},
        "",
        {"question": "Which is larger?", "answer": "9.9", "checker": "choice", "choices": ["9.9", "9.11"], "tools": []},
        {"question": "Say yes.", "answer": "yes", "tools": ["python"], "split": "held_out", "name": "yes"},
    )
    assert [task.name for task in (first, second, third)] == ["line-1", "line-3", "yes"]
    assert [task.wants for task in (first, second, third)] == [("calculator",), (), ("python",)]
    assert (first.split, third.split, first.system) == (split_of("Days in a leap year?"), "held_out", "Be exact.")
    for task, right, wrong in ((first, "It has 366.", "365"), (second, "9.9", "9.11"), (third, "Yes!", "no")):
        right = right.removesuffix("!")
        assert (await task.problem.goal.read(Deeds(answer=right))).share == 1.0
        assert (await task.problem.goal.read(Deeds(answer=wrong))).share == 0.0
    assert json.loads(first.problem.solution[0].arguments) == {"answer": "366"}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"answer": "1"}, "line 2: question: Field required"),
        ({"question": "1?"}, "line 2: answer"),
        ({"question": "1?", "answer": "1", "tool": []}, "line 2: tool: Extra inputs"),
        ({"question": "1?", "answer": "1", "checker": "numbr"}, "line 2: checker"),
        (
            {"question": "1?", "answer": "one", "checker": "number"},
            "line 2: its checker, number, does not accept its own",
        ),
        ({"question": "1?", "answer": "c", "checker": "choice", "choices": ["a"]}, "line 2: its checker, choice"),
        ({"question": "1?", "answer": "1", "name": "line-1"}, "line 2: there is a task 'line-1' already"),
        ("{", "line 2 is not JSON"),
        ("[]", "line 2: the line"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: object, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        read(tmp_path, {"question": "ok?", "answer": "1"}, row)


def test_a_file_without_tasks_and_one_that_is_missing_are_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds no task"):
        read(tmp_path, "")
    with pytest.raises(TaskError, match="cannot be read"):
        read_tasks(tmp_path / "none.jsonl", tools=(), system="")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="cannot be read"):
        read_tasks(tmp_path / "binary.jsonl", tools=(), system="")


def test_about_every_fifth_question_is_held_out() -> None:
    held_out = sum(split_of(f"question {number}") == "held_out" for number in range(1000))
    assert 150 < held_out < 250

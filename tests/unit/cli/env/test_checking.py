"""`env check`: one line a task, with the reason where it is not fit to train on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from openclaw_rl.cli.env.checking import check_tasks
from openclaw_rl.config import Config
from openclaw_rl.errors import TaskError
from tests.fakes.boxes import sandbox_or_skip
from tests.fakes.harbor_tasks import write_task


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.model_validate({"model": {"cache_dir": tmp_path / "cache"}})


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r"  [0-9.]+ s$", "", line) for line in capsys.readouterr().out.splitlines()]


def test_each_task_is_one_line(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox_or_skip(tmp_path / "boxes")
    tasks = tmp_path / "tasks"
    write_task(tasks / "good", {})
    write_task(tasks / "empty", {"instruction.md": ""})
    write_task(tasks / "unsolved", {"solution/solve.sh": "#!/bin/sh\necho no idea\nexit 5\n"})
    assert check_tasks(config, "terminal", str(tasks), (), as_json=False) == 1
    assert lines(capsys) == [
        "empty  instruction.md is empty; it says what the agent is to do",
        "good  ok",
        "unsolved  the author's solution earns 0 instead of 1",
        "[the solution ended with code 5: no idea]",
        "1 of 3 tasks are fit to train on",
    ]
    assert check_tasks(config, "terminal", str(tasks), ("good",), as_json=True) == 0
    (checked,) = json.loads(capsys.readouterr().out)
    assert (checked["ref"]["name"], checked["is_good"], checked["problem"]) == ("good", True, "")


def test_a_remedy_is_told_to_its_end(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a command to copy: on one line, and whole."""
    image = f"python:3.13-slim-bookworm@sha256:{'0' * 64}"
    write_task(tmp_path / "tasks" / "far", {"task.toml": "", "environment/Dockerfile": f"FROM {image}\n"})
    assert check_tasks(config, "terminal", str(tmp_path / "tasks"), (), as_json=False) == 1
    told, _ = lines(capsys)
    assert told.startswith(f"far  the image {image} is not here")
    assert told.endswith("docker rm openclaw-image")


def test_a_task_that_is_not_there_is_told(config: Config, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "good", {})
    with pytest.raises(TaskError, match="there is no task 'bad' in"):
        check_tasks(config, "terminal", str(tmp_path / "tasks"), ("bad",), as_json=False)

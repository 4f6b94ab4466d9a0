"""The task directories that a folder stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.datasets import find_task, find_tasks
from openclaw_rl.errors import TaskError
from tests.fakes.harbor_tasks import write_task


@pytest.fixture
def two(tmp_path: Path) -> Path:
    write_task(tmp_path / "b", {"task.toml": '[task]\nname = "org/second"'})
    write_task(tmp_path / "a", {})
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_a_folder_is_one_task_or_many(two: Path) -> None:
    assert find_tasks(two) == {"a": two / "a", "b": two / "b"}
    assert find_tasks(two / "a") == {"a": two / "a"}
    assert find_task(two, "b") == two / "b"


def test_a_task_that_lost_its_toml_is_not_overlooked(two: Path) -> None:
    (two / "b" / "task.toml").unlink()
    assert list(find_tasks(two)) == ["a", "b"]


def test_a_dataset_names_its_tasks(two: Path) -> None:
    (two / "dataset.toml").write_text('[[tasks]]\nname = "org/second"\n[[tasks]]\nname = "org/a"')
    assert list(find_tasks(two).items()) == [("b", two / "b"), ("a", two / "a")]
    (two / "dataset.toml").write_text('[[tasks]]\nname = "a"')
    assert find_tasks(two) == {"a": two / "a"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is not TOML"),
        ("", "lists no tasks"),
        ("tasks = 5", "lists no tasks"),
        ("tasks = [{}]", "lists no tasks"),
        ('[[tasks]]\nname = "org/none"', "lists org/none, which is not beside it"),
    ],
)
def test_a_dataset_that_lists_nothing_is_told(two: Path, text: str, why: str) -> None:
    (two / "dataset.toml").write_text(text)
    with pytest.raises(TaskError, match=why):
        find_tasks(two)


def test_a_folder_without_tasks_is_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds no task"):
        find_tasks(tmp_path)
    with pytest.raises(TaskError, match="is not a folder"):
        find_tasks(tmp_path / "none")


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a\n"])
def test_a_name_that_is_none_is_refused(two: Path, name: str) -> None:
    with pytest.raises(TaskError, match="a task is named as its folder"):
        find_task(two, name)


def test_an_unknown_name_is_told_what_there_is(two: Path) -> None:
    with pytest.raises(TaskError, match="has no task 'c'; it has a, b"):
        find_task(two, "c")

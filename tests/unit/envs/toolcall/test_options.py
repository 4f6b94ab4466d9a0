"""Where tasks come from: names, files, and what a file may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.envs.toolcall.options import SourceOptions, read_options
from openclaw_rl.errors import TaskError


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("sums", SourceOptions(family="sums")),
        ("sums-3", SourceOptions(family="sums", level=3)),
        ("sums-0", SourceOptions(family="sums-0")),
        ("gym:chain_sum", SourceOptions(gym="chain_sum")),
        ("/a/b.jsonl", SourceOptions(tasks=Path("/a/b.jsonl"))),
    ],
)
def test_a_name_says_what_a_source_is(source: str, options: SourceOptions) -> None:
    assert read_options(source) == options


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    said = {"tasks": "mine.jsonl", "system": "prompt.txt", "reward": "shaped", "tools": ["python"]}
    (tmp_path / "set.json").write_text(json.dumps(said))
    options = read_options(str(tmp_path / "set.json"))
    assert (options.tasks, options.system) == (tmp_path / "mine.jsonl", tmp_path / "prompt.txt")
    assert (options.reward, options.tools) == ("shaped", ("python",))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "one of family, tasks and gym"),
        ({"family": "sums", "gym": "lcm"}, "one of family, tasks and gym"),
        ({"family": "sums", "tools": ["python"]}, "tools says nothing about a source of family"),
        ({"tasks": "t.jsonl", "level": 2}, "level says nothing about a source of tasks"),
        ({"gym": "lcm", "shots": 2}, "shots says nothing about a source of gym"),
        ({"family": "sums", "levl": 2}, "levl"),
        ({"family": "sums", "level": 0}, "level"),
        ({"family": "sums", "num_train": 10**9}, "num_train"),
        ([], "set.json"),
    ],
)
def test_what_has_no_effect_is_refused(tmp_path: Path, said: object, why: str) -> None:
    (tmp_path / "set.json").write_text(json.dumps(said))
    with pytest.raises(TaskError, match=why):
        read_options(str(tmp_path / "set.json"))


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_file_that_is_no_json_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "set.json").write_text(text)
    with pytest.raises(TaskError, match="is not JSON"):
        read_options(str(tmp_path / "set.json"))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot be read: No such file"):
        read_options(str(tmp_path / "set.json"))

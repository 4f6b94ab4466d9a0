"""Records in SWE-bench's format: read as they are published, refused with the record that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.envs.swe.rows import read_rows, write_rows
from openclaw_rl.errors import TaskError


def record(name: str = "a-1", repo: str = "owner/a", **more: Any) -> dict[str, Any]:
    return {
        "instance_id": name,
        "repo": repo,
        "base_commit": "abcdef0",
        "problem_statement": "It fails.",
        "patch": "diff",
        "FAIL_TO_PASS": '["tests/test_a.py::test_x"]',
        "PASS_TO_PASS": ["tests/test_a.py::test_y"],
        "hints_text": "not needed",
        **more,
    }


def saved(folder: Path, *records: dict[str, Any]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    return file


def test_lists_may_be_json_in_a_string(tmp_path: Path) -> None:
    (row,) = read_rows(saved(tmp_path, record()))
    assert (row.fail_to_pass, row.pass_to_pass) == (("tests/test_a.py::test_x",), ("tests/test_a.py::test_y",))
    assert (row.split, row.packages) == ("train", False)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    rows = read_rows(saved(tmp_path, record(split="held_out")))
    write_rows(tmp_path / "again.jsonl", rows)
    assert read_rows(tmp_path / "again.jsonl") == rows


def test_no_repository_is_in_both_splits(tmp_path: Path) -> None:
    rows = read_rows(saved(tmp_path, *(record(f"{repo}-{n}", f"owner/{repo}") for repo in "abcdefgh" for n in (1, 2))))
    splits = {repo: {row.split for row in rows if row.repo == repo} for repo in {row.repo for row in rows}}
    assert all(len(found) == 1 for found in splits.values())
    assert sum(found == {"held_out"} for found in splits.values()) == 2, "every fifth repository"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"FAIL_TO_PASS": []}, "record 1: FAIL_TO_PASS"),
        ({"base_commit": "HEAD; rm -rf /"}, "record 1: base_commit"),
        ({"repo": "../../etc"}, "record 1: repo"),
        ({"instance_id": "a/../b"}, "record 1: instance_id"),
        ({"problem_statement": ""}, "record 1: problem_statement"),
    ],
)
def test_a_record_that_is_wrong_is_named(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        read_rows(saved(tmp_path, record(**wrong)))


def test_a_file_that_is_no_set_is_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds a-1 more than once"):
        read_rows(saved(tmp_path, record(), record()))
    with pytest.raises(TaskError, match="holds no tasks"):
        read_rows(saved(tmp_path))
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(TaskError, match="is not JSON"):
        read_rows(tmp_path / "bad.jsonl")
    with pytest.raises(TaskError, match="cannot be read"):
        read_rows(tmp_path / "none.jsonl")

"""Lines of JSON that are whole or not there, and hold no conversation."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.tracking.records import RecordsObserver, append_line, forget_lines
from openclaw_rl.types import Lesson, Skip
from tests.factories.events import METRICS, credited, step


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_turn_is_a_line_with_what_was_said_of_it_and_no_word_of_it(tmp_path: Path) -> None:
    records = RecordsObserver(tmp_path / "records")
    records.credited(*credited(hint="Use the key sk-proj-4f9dKQm2Xz7LpR8sVbN3wYhT1uE6cAjG here."))
    records.credited(*credited(Skip.ALREADY_TRAINED))
    path = tmp_path / "records" / "turns.jsonl"
    first, second = read(path)
    hint = first.pop("hints")
    assert first == {
        "turn": "s-1.2",
        "line": "ann",
        "judged_at": 105.0,
        "num_evidence": 1,
        "judge": "rules",
        "prompt_version": "4",
        "outcome": "scored",
        "score": -1,
        "votes": [{"question": "score", "score": -1}, {"question": "hint", "score": None}],
        "rule": "combine",
        "reward": -1.0,
        "skip": None,
        "samples": ["s-1.2"],
    }
    assert "sk-proj" not in hint[0]
    assert "here." in hint[0]
    assert (second["skip"], second["samples"], second["hints"]) == ("already_trained", [], ["Answer in one sentence."])
    for private in ("secret answer", "how are you", "the words of a judge", "quotes what was said"):
        assert private not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_step_is_a_line_with_its_samples_metrics_and_version(tmp_path: Path) -> None:
    records = RecordsObserver(tmp_path)
    records.stepped(step(3, line="ann", num_anchors=1))
    records.stepped(step(4, state="discarded", metrics={}, reason="the loss is nan"))
    done, discarded = read(tmp_path / "steps.jsonl")
    assert done == {
        "line": "ann",
        "step": 3,
        "state": "done",
        "reason": "",
        "planned_at": 100.0,
        "finished_at": 110.0,
        "parent": "v2.ann",
        "version": "v3.ann",
        "seed": 7,
        "samples": ["s-1.0", "s-1.1", "s-2.0"],
        "replayed": ["s-0.4"],
        "anchors": 1,
        "metrics": METRICS,
    }
    assert (discarded["version"], discarded["reason"]) == (None, "the loss is nan")


def test_a_reason_loses_the_names_of_forgotten_turns_and_nothing_else(tmp_path: Path) -> None:
    reasons = ("import", "turn e.0 was undone", "turn ee.0 was undone")
    lines = [{"line": "ann", "samples": ["e.0", "ee.0"], "replayed": [], "reason": reason} for reason in reasons]
    for line in lines:
        append_line(tmp_path / "steps.jsonl", json.dumps(line).encode())
    forget_lines(tmp_path, Lesson(line="ann", sessions=("e",)))
    left = read(tmp_path / "steps.jsonl")
    assert [line["reason"] for line in left] == ["import", "a forgotten turn was undone", "turn ee.0 was undone"]
    assert [line["samples"] for line in left] == [["ee.0"]] * 3


def test_a_line_that_does_not_fit_is_not_there_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, b'{"number": 1}')
    before = path.read_bytes()
    with no_file_larger_than(len(before) + 5), pytest.raises(OSError, match="disk is full"):
        append_line(path, b'{"number": 2}')
    assert path.read_bytes() == before
    append_line(path, b'{"number": 3}')
    assert [line["number"] for line in read(path)] == [1, 3]


@pytest.mark.parametrize("torn", [b'{"number": 2, "sc', b'{"number": 2}'])
def test_what_a_crash_tore_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"number": 1}\n' + torn)
    append_line(path, b'{"number": 3}')
    assert [line["number"] for line in read(path)] == [1, 3]
    path.write_bytes(torn)
    append_line(path, b'{"number": 4}')
    assert [line["number"] for line in read(path)] == [4]

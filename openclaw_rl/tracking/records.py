"""Judged turns and steps -> lines of JSON in DIR/records, which only their owner reads.

    turns.jsonl     one line for each judgement of a turn: what the judge said and what came of it
    steps.jsonl     one line for each step: what it learned from, all metrics, and the version that it made

A line is whole or not there. Lines are only added, by one process at a time: the one that writes the store. They hold
ids, scores and hints, hints without secrets; no message, no token, and nothing that a judge said in its own words.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson

from openclaw_rl.redaction import redact
from openclaw_rl.tracking.observers import Observer
from openclaw_rl.types import Credit, Json, JudgedTurn, Lesson, Step, line_of, version_label

TURNS, STEPS = "turns.jsonl", "steps.jsonl"


class RecordsObserver(Observer):
    """Files are made with their first line."""

    name = "the records"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        self._add(TURNS, _turn_line(judged, credit))

    def stepped(self, step: Step) -> None:
        self._add(STEPS, _step_line(step))

    def _add(self, name: str, line: Mapping[str, object]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(self._folder):
            append_line(self._folder / name, orjson.dumps(line))


def forget_lines(folder: Path, lesson: Lesson) -> None:
    """Leaves no line about the turns of a lesson, and no name of theirs in lines about steps. Blocking."""
    for name in (TURNS, STEPS):
        path = folder / name
        if not path.exists():
            continue
        with _alone(folder):
            lines = path.read_bytes().splitlines()
            kept = [line for line in (_without(each, lesson) for each in lines) if line is not None]
            scratch = path.with_name(f".{name}.new")
            scratch.touch(mode=0o600)
            scratch.write_bytes(b"".join(line + b"\n" for line in kept))
            scratch.replace(path)


def _without(line: bytes, lesson: Lesson) -> bytes | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None  # what a crash tore says nothing
    if record["line"] != lesson.line:
        return line
    if lesson.everything or ("turn" in record and lesson.holds(record["turn"])):
        return None
    for name in ("samples", "replayed"):
        if name in record:
            record[name] = [one for one in record[name] if not lesson.holds(one)]
    if "reason" in record:
        record["reason"] = lesson.unnamed(record["reason"])
    return orjson.dumps(record)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else writes to these files meanwhile, in this process or in another."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Adds a line, or raises and leaves the file as it was. What a crash of the machine tore is cut off first."""
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
    try:
        size = _whole_size(descriptor)
        os.ftruncate(descriptor, size)
        data = line + b"\n"
        if os.write(descriptor, data) != len(data):
            os.ftruncate(descriptor, size)
            raise OSError(f"the disk is full: {path} cannot grow by {len(data)} bytes")
    finally:
        os.close(descriptor)


def _whole_size(descriptor: int) -> int:
    """Up to the end of the last whole line."""
    size = os.fstat(descriptor).st_size
    while size and os.pread(descriptor, 1, size - 1) != b"\n":
        size -= 1
    return size


def _turn_line(judged: JudgedTurn, credit: Credit) -> dict[str, Json]:
    judgement, verdict = judged.judgement, judged.judgement.verdict
    return {
        "turn": judgement.turn_id,
        "line": line_of(judged.session),
        "judged_at": judgement.judged_at,
        "num_evidence": judgement.num_evidence,
        "judge": judgement.judge,
        "prompt_version": judgement.prompt_version,
        "outcome": verdict.outcome,
        "score": verdict.score,
        "votes": [{"question": vote.question, "score": vote.score} for vote in verdict.votes],
        "hints": [redact(hint) for hint in verdict.hints],
        "rule": credit.rule,
        "reward": credit.reward,
        "skip": credit.skip,
        "samples": [sample.id for sample in credit.samples],
    }


def _step_line(step: Step) -> dict[str, Json]:
    return {
        "line": step.line,
        "step": step.number,
        "state": step.state,
        "reason": step.reason,
        "planned_at": step.planned_at,
        "finished_at": step.finished_at,
        "parent": version_label(step.line, step.parent),
        "version": version_label(step.line, step.number) if step.state == "done" else None,
        "seed": step.seed,
        "samples": list(step.sample_ids),
        "replayed": list(step.replayed_ids),
        "anchors": step.num_anchors,
        "metrics": dict(step.metrics),
    }

"""Orders and reports as private files, which the control process and a trainer's worker hand to each other by name.

An order can hold millions of numbers, so it is no line on a pipe. Its file has one JSON line for what is small, and one
for each sample or sequence:

    {"step": {"line": "local", "number": 3, …}}          {"score": {"starts": [12, 9], …}}
    {"id": "s-5f1c.0", "prompt_ids": [1, 9690, …], …}    [1, 9690, …]

Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from openclaw_rl.types import (
    Candidate,
    Exercise,
    Sample,
    ScoreOrder,
    ScoreReport,
    StepOrder,
    StepReport,
    VersionSpan,
    WeightsRef,
)

TEACHER_KEY = "OPENCLAW_RL_TEACHER"
"""The variable in which a worker gets the key of the teacher's server: arguments and orders are read by others."""

Order = StepOrder | ScoreOrder
Report = StepReport | ScoreReport


def write_order(path: Path, order: Order) -> None:
    """Writes a new file that only its owner reads."""
    _write(path, order_lines(order))


def read_order(path: Path) -> Order:
    """The inverse of `write_order`."""
    with path.open(encoding="utf-8") as lines:
        return parse_order(lines)


def order_lines(order: Order) -> Iterator[str]:
    """The lines of an order's file."""
    head = _fields(order)
    kind, many = ("step", "samples") if isinstance(order, StepOrder) else ("score", "sequences")
    rest = head.pop(many)
    for document in ({kind: head}, *rest):
        yield _line(document)


def parse_order(lines: Iterable[str]) -> Order:
    """The inverse of `order_lines`."""
    first, *many = [json.loads(line) for line in lines]
    ((kind, head),) = first.items()
    if kind == "score":
        return ScoreOrder(
            **{
                **head,
                "sequences": tuple(map(tuple, many)),
                "starts": tuple(head["starts"]),
                "parent": _weights(head["parent"]),
                "candidate": WeightsRef(**head["candidate"]),
            }
        )
    return StepOrder(
        **{
            **head,
            "parent": _weights(head["parent"]),
            "samples": tuple(map(_sample, many)),
            "anchors": tuple(map(tuple, head["anchors"])),
            "stop_token_ids": tuple(head["stop_token_ids"]),
            "exercises": tuple(map(_exercise, head["exercises"])),
        }
    )


def write_report(path: Path, report: Report) -> None:
    """Writes a new file that only its owner reads."""
    _write(path, [report_line(report)])


def read_report(path: Path) -> Report:
    """The inverse of `write_report`."""
    return parse_report(path.read_text(encoding="utf-8"))


def report_line(report: Report) -> str:
    """The one line of a report's file."""
    return _line({"step" if isinstance(report, StepReport) else "score": report})


def parse_report(line: str) -> Report:
    """The inverse of `report_line`."""
    ((kind, raw),) = json.loads(line).items()
    if kind == "score":
        return ScoreReport(**{**raw, **{name: tuple(map(tuple, raw[name])) for name in ("parent", "candidate")}})
    return StepReport(**{**raw, "weights": _weights(raw["weights"])})


def _write(path: Path, lines: Iterable[str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(lines)


def _line(document: Any) -> str:
    return json.dumps(document, default=_fields) + "\n"


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _weights(raw: Mapping[str, Any] | None) -> WeightsRef | None:
    return None if raw is None else WeightsRef(**raw)


def _sample(raw: Mapping[str, Any]) -> Sample:
    return Sample(
        **{
            **{name: _tuple(value) for name, value in raw.items()},
            "candidates": tuple(map(_candidate, raw["candidates"])),
            "version_spans": tuple(VersionSpan(**span) for span in raw["version_spans"]),
        }
    )


def _exercise(raw: Mapping[str, Any]) -> Exercise:
    return Exercise(**{**raw, "prompt_ids": tuple(raw["prompt_ids"]), "candidate": _candidate(raw["candidate"])})


def _candidate(raw: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**raw, "suffix_ids": tuple(raw["suffix_ids"])})


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

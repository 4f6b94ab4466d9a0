"""Versions: how they stand on each other, what their check measured, and how measures went over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VersionStateWord = Literal["base", "candidate", "no_effect", "probation", "live", "retired", "rejected", "rolled_back"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    version: str
    """Its label, such as v3 or v3.ann."""
    user: str
    number: int
    parent: int
    """0 is the base model."""
    state: VersionStateWord
    answers: bool
    """Whether it answers now."""
    is_ancestor: bool
    """Whether the one that answers stands on it."""
    created_at: float
    live_at: float | None
    reason: str
    num_lessons: int
    num_replayed: int
    is_imported: bool
    loss: float | None
    can_answer: bool
    """Whether one can roll back, or forward, to it."""
    has_weights: bool
    """Whether it can be exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPage:
    """The newest first. The base model is no row: its number is 0 and `answering` may name it."""

    items: tuple[VersionRow, ...]
    next: str | None
    answering: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMeasure:
    """One thing that the check measured. `low` and `high` are the limits that the candidate must keep to."""

    name: str
    words: str
    base: float | None
    parent: float | None
    candidate: float | None
    limit: str
    """The limit in words; empty where there is none."""
    low: float | None
    high: float | None
    objects: bool
    """Whether this measure rejects the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofText:
    """That engine and trainer agree about what the version changes."""

    is_proved: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCount:
    """How its answers to people fared, beside its parent's."""

    name: str
    words: str
    num: int
    of: int
    parent_num: int
    parent_of: int
    odds: float
    alarm_odds: float
    is_alarm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLesson:
    sample: str
    turn: str | None
    """Null: its turn is gone, or was undone."""
    sentence: str
    hint: str
    is_replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDetail:
    row: VersionRow
    check: Literal["none", "quick", "full"]
    check_s: float | None
    measures: tuple[CheckMeasure, ...]
    proof: ProofText | None
    served: tuple[ServedCount, ...]
    lessons: tuple[VersionLesson, ...]
    metrics: dict[str, float]
    """What the trainer told of the step, such as loss/total."""
    sha256: str
    model: str
    """What it was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePair:
    name: str
    words: str
    left: float | None
    right: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Any two versions of a line side by side; `lessons` are those that one has learned and the other has not."""

    left: VersionRow | None
    """Null is the base model."""
    right: VersionRow | None
    measures: tuple[MeasurePair, ...]
    only_left: tuple[VersionLesson, ...]
    only_right: tuple[VersionLesson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The fixed questions that two versions can be asked."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskBody:
    """One question to two versions, such as v3 and v0; nothing of it is kept."""

    question: str
    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoAnswers:
    question: str
    left: str
    right: str
    left_version: str
    right_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBackBody:
    """`untried` allows a version that never served, such as one that its check rejected."""

    untried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NowAnswers:
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    version: str
    number: int
    at: float
    state: VersionStateWord
    value: float
    parent: float | None
    base: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One measure over the versions of a line, the oldest first."""

    name: str
    words: str
    points: tuple[TrendPoint, ...]
    low: float | None
    """The limits that the newest version had to keep to, where it had any."""
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    version: str
    words: str
    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """`trends` has what there are figures for: towards_user, capability, length, repetition, refusals, reward, …"""

    user: str
    trends: tuple[Trend, ...]
    alarms: tuple[Alarm, ...]

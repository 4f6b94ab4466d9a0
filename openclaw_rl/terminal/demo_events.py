"""What happens in a demo, as whoever shows it is told. Turns are counted from 1."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.evaluation.exam import Examination
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.terminal.plot import CurvePoint
from openclaw_rl.types import Json, Step, Verdict, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    turn: int
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    turn: int
    version: str
    text: str
    num_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reacted:
    """What the user said to the answer, and how well it met the hidden preference."""

    turn: int
    message: str
    is_content: bool
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    turn: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A turn that is not learned from."""

    turn: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A step ended, or began (`planned`); `turns` are those that it learns from."""

    step: Step
    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A version came up, or has another state than before."""

    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A version on held-out questions. `num_lessons` are the turns that it learned from."""

    number: int
    label: str
    num_lessons: int
    preference: Interval
    tokens: float
    on_topic: float
    capability: Interval | None
    num_items: int
    examination: Examination

    @property
    def curve(self) -> CurvePoint:
        return CurvePoint(
            num_lessons=self.num_lessons,
            label=self.label,
            preference=self.preference,
            tokens=self.tokens,
            capability=self.capability,
        )

    def to_json(self) -> dict[str, Json]:
        return {
            "version": self.label,
            "lessons": self.num_lessons,
            "preference": self.preference.to_json(),
            "tokens": self.tokens,
            "on_topic": self.on_topic,
            "capability": None if self.capability is None else self.capability.to_json(),
            "capability_items": self.num_items,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What is waited for, and how far it is; an empty text when it is over."""

    text: str
    done: int = 0
    total: int = 0


Event = Asked | Answered | Reacted | Judged | Left | Stepped | Changed | Measured | Doing

"""What became of what a person said about an answer, in plain words, with times.

heard -> judged (why) -> learning -> being checked -> live in v7         or left out, and why
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CorrectionState = Literal["heard", "judged", "learning", "checking", "live", "left_out", "rejected", "taken_back"]
"""`heard`: waits for the judge. `judged`: waits for its step. `learning`: a step is at it. `checking`: its version is
compared with its parent. `live`: a version that answers, or that the one that answers stands on, learned
it. `left_out`: nothing is learned from it. `rejected`: the version did not pass; the lesson is tried again, or not, as
the words say. `taken_back`: undone, or rolled back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Why nothing is learned from a turn."""

    reason: str
    """One word, such as neutral or claim."""
    words: str
    remedy: str
    """What would change it; empty where nothing would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionStage:
    name: Literal["heard", "judged", "learning", "checked", "live"]
    at: float | None
    """When it was reached; null: not yet, or never."""
    took_s: float | None
    """How long after the stage before it."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    turn: str
    state: CorrectionState
    words: str
    """The whole state in a sentence, such as: live in v7."""
    sentence: str
    """What the person said."""
    stages: tuple[CorrectionStage, ...]
    """Always the five, in order."""
    verdict: str | None
    """+1, 0, −1, another number with its sign, abstained or failed; null while nobody has judged."""
    hints: tuple[str, ...]
    version: str | None
    """The version that learned it, whatever its state."""
    left_out: LeftOut | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpinionBody:
    """A thumb, a sentence, or both."""

    score: Literal[-1, 0, 1] | None = None
    text: str = ""

"""Attempts of an agent at tasks of an environment: which sessions belong to one, and how it ended.

Episode(id="e-1", environment="terminal", task="count-lines", group="g-7", attempt=0, group_size=8)
Outcome(episode="e-1", reward=0.37, ended_at=…)     or     Outcome(episode="e-1", failure="the box died", …)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from openclaw_rl.types.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One attempt at one task. Its sessions name it; attempts of one `group` are compared with each other.

    A group is complete when `group_size` attempts of it have an outcome.
    """

    id: str
    environment: str
    task: str
    group: str
    attempt: int
    group_size: int = 1

    def __post_init__(self) -> None:
        for name in ("id", "task", "group"):
            require(bool(getattr(self, name)), f"an episode needs a name for its {name}")
        require(
            re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", self.environment) is not None,
            f"the name of an environment has 1 to 64 of A-Z a-z 0-9 _ . -; got {self.environment!r}",
        )
        require(self.group_size >= 1, f"a group has at least one attempt, got {self.group_size}")
        require(
            0 <= self.attempt < self.group_size,
            f"attempt {self.attempt} does not fit a group of {self.group_size}; attempts are counted from 0",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """Whom the key of an attempt lets in: an agent at work, that teaches its line only if it is to `learn`."""

    episode: Episode
    learn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStep:
    """One main turn of an attempt. `score` is what a judge made of what followed it: 0 where nothing was said about the
    step itself, None where the judge failed."""

    session: str
    index: int
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An episode that ended with a reward, and its steps in order: what the attempts of a group are compared by."""

    episode: Episode
    reward: float
    steps: tuple[AttemptStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an episode ended: a reward, any real number, or a failure of the environment, which is no reward at all."""

    episode: str
    ended_at: float
    reward: float | None = None
    failure: str = ""

    def __post_init__(self) -> None:
        require(
            (self.reward is None) == bool(self.failure),
            "an outcome has a reward, or else the reason why the environment failed",
        )
        require(self.reward is None or math.isfinite(self.reward), f"a reward is a finite number, got {self.reward}")

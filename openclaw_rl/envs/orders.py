"""What is to be attempted, and how an attempt went: what commands, the server and the gate tell each other.

CollectOrder(tried=Tried(environment="terminal"), run="monday", num_episodes=64, group_size=8)
Attempted(task="count-3", group="monday/count-3", attempt=0, grade=Grade(reward=1.0, share=1.0), ended="finished", …)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from openclaw_rl.types import Grade, Json, Split
from openclaw_rl.types.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Where tasks come from, and who attempts them. An empty `source`: the tasks that are shipped; `names`: only these
    tasks, none = all."""

    environment: str
    source: str = ""
    harness: str = "builtin"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.environment) and bool(self.harness), "name an environment and a harness")

    def to_json(self) -> dict[str, Json]:
        return {**asdict(self), "names": list(self.names)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        return cls(**{**raw, "names": tuple(raw.get("names", ()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOrder:
    """Attempts that teach. A `run` that is ordered again under its name goes on with the groups that are missing.

    `parallel` attempts are made at once, of `workers` groups. `tell_steps`: whoever ordered it wants to see what the
    agents do.
    """

    tried: Tried
    run: str
    num_episodes: int
    group_size: int
    parallel: int = 16
    workers: int = 4
    seed: int = 0
    tell_steps: bool = False

    def __post_init__(self) -> None:
        require(bool(self.run), "a collection has a name")
        require(self.parallel >= 1 and self.workers >= 1, "at least one attempt is made at once")
        require(self.group_size >= 1, f"a group has at least one attempt, got {self.group_size}")
        require(
            self.num_episodes >= self.group_size,
            f"{self.num_episodes} episodes are less than one group of {self.group_size}: ask for more episodes, or for "
            "smaller groups",
        )

    @property
    def num_groups(self) -> int:
        return self.num_episodes // self.group_size

    def to_json(self) -> dict[str, Json]:
        return {**asdict(self), "tried": self.tried.to_json()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        return cls(**{**raw, "tried": Tried.from_json(raw["tried"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamOrder:
    """Attempts by versions of a line that nobody learns from, at the same tasks each. `split`: which tasks."""

    tried: Tried
    versions: tuple[int, ...]
    num_tasks: int
    attempts: int = 1
    split: Split = "held_out"
    tell_steps: bool = False

    def __post_init__(self) -> None:
        require(bool(self.versions), "name a version")
        require(self.num_tasks >= 1 and self.attempts >= 1, "ask for at least one attempt at one task")

    def to_json(self) -> dict[str, Json]:
        return {**asdict(self), "tried": self.tried.to_json(), "versions": list(self.versions)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        return cls(**{**raw, "tried": Tried.from_json(raw["tried"]), "versions": tuple(raw["versions"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """How one attempt went. `ended`: who ended it; empty where the environment failed before."""

    task: str
    group: str
    attempt: int
    version: str
    grade: Grade
    ended: str
    num_steps: int
    seconds: float

    def to_json(self) -> dict[str, Json]:
        grade = self.grade
        return {
            **asdict(self),
            "grade": {
                "reward": grade.reward,
                "share": grade.share,
                "failure": grade.failure,
                "metrics": dict(grade.metrics),
                "report": grade.report,
            },
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        return cls(**{**raw, "grade": Grade(**raw["grade"])})

"""Tasks of environments, and what an agent sees of an attempt at one.

Task(ref=TaskRef(environment="terminal", source="", name="count-lines-3"), split="train", instruction="Count …")
Opening(messages=(system, user), tools=(shell, …), workdir="/app", timeout_s=600.0)
Observation(content="3 notes.txt")
Grade(reward=0.0, share=0.5, metrics={"passed": 2.0, "tests": 4.0})       or     Grade(failure="the box died")
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from openclaw_rl.types.checks import require
from openclaw_rl.types.messages import Json, Message, Tool

Split = Literal["train", "held_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRef:
    """Which task: its environment, a source of tasks there (empty: those that we ship), and its name in the source."""

    environment: str
    source: str
    name: str

    def __post_init__(self) -> None:
        require(bool(self.environment) and bool(self.name), "a task has an environment and a name")

    def to_json(self) -> dict[str, Json]:
        return {"environment": self.environment, "source": self.source, "name": self.name}

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        return cls(environment=raw["environment"], source=raw["source"], name=raw["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as lists show it. Nobody trains on one that is held out."""

    ref: TaskRef
    split: Split
    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSource:
    """A set of tasks that an environment knows by name. One without a name is meant where none is named; so is one
    that `is_default`."""

    name: str
    about: str
    num_train: int
    num_held_out: int
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How an attempt begins: what the agent is told, and the tools that it may call.

    `messages` end with the user's, which holds the instruction. Programs that act by themselves take that one and
    bring their own tools; they begin in `workdir`. A tool named `submit` takes the final answer: who acts calls it
    with `{"answer": text}` when the agent ends by saying something instead of calling a tool.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    workdir: str = "/"
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        require(bool(self.messages) and self.messages[-1].role == "user", "an opening ends with what the user asks for")
        require(self.timeout_s > 0, f"an attempt takes time, got {self.timeout_s} s")

    @property
    def instruction(self) -> str:
        return self.messages[-1].content


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came of one call of a tool. `is_error`: the call was at fault. `is_done`: the environment ends the attempt.

    `reward` is what an environment that rewards every step says of this one.
    """

    content: str
    is_error: bool = False
    is_done: bool = False
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that ended, or was stopped at its time limit (`exit_code` is None). `is_cut`: there was more output."""

    exit_code: int | None
    output: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What an attempt is worth: a reward, any real number, or why the environment failed, which says nothing of the
    agent. `share` is how much of the task is done, 1 for all of it. `report` tells people, and the judge, what was
    wrong."""

    reward: float | None = None
    share: float = 0.0
    failure: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    report: str = ""

    def __post_init__(self) -> None:
        require(
            (self.reward is None) == bool(self.failure),
            "a grade has a reward, or else the reason why the environment failed",
        )
        require(self.reward is None or math.isfinite(self.reward), f"a reward is a finite number, got {self.reward}")
        require(0.0 <= self.share <= 1.0, f"the share of a task that is done lies between 0 and 1, got {self.share}")

    @property
    def is_solved(self) -> bool:
        return self.share >= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomLease:
    """A room that is ours until `ttl_s` after the last heartbeat."""

    id: str
    task: TaskRef
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where an agent at work finds the model. The key names the attempt; `model` is what it asks for there."""

    url: str
    key: str
    model: str


EndOfAttempt = Literal["finished", "max_turns", "timeout", "context", "environment"]
"""Who ended it: the agent, the limit of turns, the clock, the model's window, or the environment."""

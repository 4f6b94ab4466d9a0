"""The machine: the loop as stages with a light each, what runs, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Light = Literal["ok", "busy", "waits", "broken", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStage:
    name: Literal["captured", "judged", "credited", "trained", "checked", "live"]
    light: Light
    words: str
    """What it does, or waits for."""
    num_waiting: int
    """What waits before it."""
    oldest_s: float | None
    """How long the oldest of that has waited."""
    num_last_hour: int
    """What went through it in the last hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTold:
    name: str
    light: Light
    words: str
    device: str
    model: str
    versions: tuple[str, ...]
    num_running: int
    """What it computes: requests of one of several engines; answers under way where there is only one."""
    num_restarts: int
    tokens_per_s: float | None
    """Sampled tokens a second, of all engines together, since the machine was looked at before; null: not yet known."""
    memory_bytes: int | None
    """What its process holds, without what it shares; null where it runs elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerTold:
    light: Light
    words: str
    backend: str
    steps: int
    """Steps of all lines in the last hour."""
    last_step_s: float | None
    tokens_per_s: float | None
    memory_bytes: int | None
    gpu: str
    """Which; empty where none was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTold:
    light: Light
    words: str
    judge: str
    judges: dict[str, int]
    """Who decided lately, by how often."""
    num_judged: int
    agreement: float | None
    """The share of votes for a score that agree with the verdict they came to, 0 to 1."""
    sureness: float | None
    budget: int | None
    """Votes of the judge's endpoint that 24 hours allow; null: no limit."""
    spent: int | None
    """How many of them are spent; null where there is no limit, or no such judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTold:
    name: str
    num_episodes: int
    num_failed: int
    """Attempts that the environment failed: they say nothing of the agent."""
    success: float | None
    """The mean reward of the newest 100 attempts that ended."""
    last_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskTold:
    store_bytes: int
    versions_bytes: int
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What `openclaw-rl doctor` would say."""

    name: str
    state: Literal["ok", "remark", "broken"]
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """For the owner everything; other users see their own queue, and no disk or remarks."""

    at: float
    uptime_s: float
    stages: tuple[LoopStage, ...]
    engines: tuple[EngineTold, ...]
    trainer: TrainerTold | None
    judge: JudgeTold | None
    environments: tuple[EnvironmentTold, ...]
    disk: DiskTold | None
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    key: str
    """Such as training.batch_size."""
    value: str
    """As it would be written down; secrets are not shown."""
    default: str
    origin: str
    """Where it was set: default, a file's name, environment or command line."""
    words: str
    """What it does."""
    command: str
    """How to change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRows:
    items: tuple[SettingRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class YourData:
    user: str
    num_sessions: int
    num_turns: int
    num_versions: int
    retention_days: float | None
    """After how many days ended conversations are deleted; null: never."""
    retention_command: str
    """How the owner changes that."""
    redacts: bool
    """Whether secrets are taken out before anything is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetBody:
    """One conversation, or with `everything` all that the user ever said; `confirm` is the name of what is deleted."""

    session: str | None = None
    everything: bool = False
    confirm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenText:
    words: str
    sessions: int
    deleted: tuple[str, ...]
    """Versions that were deleted."""
    is_erased: bool
    """Whether its bytes are gone too; otherwise they will be in a while."""

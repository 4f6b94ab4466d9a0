"""What a release looks back at: a user's own turns, on which a candidate is tried, and those that a version served."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.types.checks import require
from openclaw_rl.types.messages import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTurn:
    """A turn as its user saw it. `text` is what was asked last, `score` the newest verdict, if there is one."""

    id: str
    text: str
    tools: tuple[Tool, ...]
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    score: int | None

    def __post_init__(self) -> None:
        require(bool(self.prompt_ids and self.response_ids), "a turn that is replayed has a prompt and a reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTurn:
    """What became of an answer. `failed`: the engine gave it up, or there is nothing in it."""

    finished_at: float
    token_ids: tuple[int, ...]
    failed: bool
    score: int | None
    """The newest verdict on it; None where there is none."""
    repeats_call: bool | None = None
    """Whether the judge found that it made a call again with nothing new in between; None where it calls nothing or
    nobody judged it."""

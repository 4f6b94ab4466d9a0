"""What the store answers with when no single noun of `types.py` says it."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.types import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found when the store was opened for writing.

    `wal_bytes` is the log that a killed process left behind: 0 after an orderly stop. When it is not 0 the whole
    database was checked (`PRAGMA quick_check`) before anything else happened. `schema_from` 0 means a new store.
    """

    wal_bytes: int
    schema_from: int
    schema_to: int

    @property
    def orderly(self) -> bool:
        """Whether the last writer closed the store itself."""
        return self.wal_bytes == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session and what happened in it. `tokens` counts the sampled ones; `versions` are sorted by name."""

    session: Session
    main_turns: int
    side_turns: int
    tokens: int
    versions: tuple[str, ...]
    last_turn_at: float | None

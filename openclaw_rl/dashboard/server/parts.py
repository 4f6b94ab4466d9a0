"""What the page needs of the running system; `pipeline.py` puts it together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_rl.config import Config, LoadedConfig
from openclaw_rl.gateway.access.auth import KeyRing
from openclaw_rl.gateway.api.admin import AdminCommands, PutLive
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.protocols import EngineHost, LearningStore, ReadStore
from openclaw_rl.release.asking import AskVersions
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.views.tokens import TokenTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """`owner_key` is the id of the local user's key; `loaded` None: nobody knows where a setting comes from."""

    config: Config
    loaded: LoadedConfig | None
    rows: ReadStore
    lessons: LearningStore
    keys: KeyRing
    owner_key: str
    live: LiveVersions
    host: EngineHost
    commands: AdminCommands
    roll_back: PutLive
    ask: AskVersions
    tokens: Callable[[], TokenTexts]
    """What ids say; read when it is asked for first, which takes a moment."""
    metrics: Metrics
    model: str
    learns: bool
    num_running: Callable[[], int]
    """Answers under way."""
    num_spent: Callable[[], int | None]
    """Votes of the judge's daily budget that are spent."""
    started_at: float = field(default_factory=time.time)

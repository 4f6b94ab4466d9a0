"""The engines by name: settings and a model's files -> a host that can be run.

The only place that knows `engine.type`; everybody else asks `Capabilities`. Another engine is one file with a function
like those of `worker/hosts.py`, a section of settings, and one line in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from openclaw_rl.config import EngineConfig, EngineType
from openclaw_rl.engine.worker.hosts import EMBEDDED, SCRIPTED, embedded_host, scripted_host
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.protocols import EngineHost
from openclaw_rl.types import Capabilities


class HostMaker(Protocol):
    """`socket` is where a process of ours listens; `name` is what logs call the engine."""

    def __call__(self, config: EngineConfig, model: ModelFiles, socket: Path, *, name: str) -> EngineHost: ...


class EngineKind(NamedTuple):
    """What an engine can do, known before it runs, and how it is made."""

    capabilities: Capabilities
    make: HostMaker


ENGINES: Mapping[EngineType, EngineKind] = {
    "embedded": EngineKind(EMBEDDED, embedded_host),
    "scripted": EngineKind(SCRIPTED, scripted_host),
}


def capabilities_of(config: EngineConfig) -> Capabilities:
    """What the configured engine can do; nothing is started."""
    return ENGINES[config.type].capabilities


def make_host(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str = "engine") -> EngineHost:
    """The configured engine on these weights. Made inside a running event loop."""
    return ENGINES[config.type].make(config, model, socket, name=name)

"""The engines by name: settings and a model's files -> a host that can be run.

The only place that knows `engine.type`; everybody else asks `Capabilities`. Another engine is one file with a function
like those of `worker/hosts.py`, a section of settings, and one line in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from openclaw_rl.config import EngineConfig, EngineType
from openclaw_rl.engine.pool.hosts import check_pool, is_pool, pool_of_replicas, pool_of_servers
from openclaw_rl.engine.worker.hosts import EMBEDDED, SCRIPTED, embedded_host, scripted_host
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.protocols import EngineHost
from openclaw_rl.types import Capabilities


class HostMaker(Protocol):
    """`socket` is where a process of ours listens; `name` is what logs call the engine."""

    def __call__(self, config: EngineConfig, model: ModelFiles, socket: Path, *, name: str) -> EngineHost: ...


class HostAttacher(Protocol):
    """`url` is that of a server that somebody else runs."""

    def __call__(self, config: EngineConfig, model: ModelFiles, url: str, *, name: str) -> EngineHost: ...


class EngineKind(NamedTuple):
    """What an engine can do, known before it runs, how it is made, and how one that runs elsewhere is attached."""

    capabilities: Capabilities
    make: HostMaker
    attach: HostAttacher | None = None


ENGINES: Mapping[EngineType, EngineKind] = {
    "embedded": EngineKind(EMBEDDED, embedded_host),
    "scripted": EngineKind(SCRIPTED, scripted_host),
}


def capabilities_of(config: EngineConfig) -> Capabilities:
    """What the configured engine can do; nothing is started."""
    return ENGINES[config.type].capabilities


def check_engine(config: EngineConfig) -> None:
    """`ConfigError` for engines that cannot be had as configured."""
    check_pool(config)
    if config.urls and ENGINES[config.type].attach is None:
        able = ", ".join(name for name, kind in ENGINES.items() if kind.attach is not None)
        raise ConfigError(
            f"engine.urls attaches to servers, and {config.type} is an engine that is started here: engine.replicas "
            f"starts several{f'; engine.type={able} can be attached to' if able else ''}"
        )


def make_host(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str = "engine") -> EngineHost:
    """The configured engine on these weights, or several as one. Made inside a running event loop."""
    check_engine(config)
    kind = ENGINES[config.type]
    if config.urls:
        attach = kind.attach
        assert attach is not None, "check_engine has seen it"
        if len(config.urls) == 1:
            return attach(config, model, config.urls[0], name=name)
        return pool_of_servers(config, config.urls, lambda url, place: attach(config, model, url, name=place))
    if is_pool(config):
        return pool_of_replicas(
            config, socket, lambda one, path, place: kind.make(one, model, path, name=place), name=name
        )
    return kind.make(config, model, socket, name=name)

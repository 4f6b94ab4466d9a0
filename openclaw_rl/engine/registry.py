"""The engines by name: settings and a model's files -> a host that can be run.

The only place that knows `engine.type`; everybody else asks `Capabilities`. Another engine is one file with a function
like those of `worker/hosts.py`, a section of settings, and one line in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.config import EngineConfig, EngineType
from openclaw_rl.engine.cloud.hosts import CLOUD, cloud_host
from openclaw_rl.engine.foreign.hosts import START_TIMEOUT_S as FOREIGN_START_TIMEOUT_S
from openclaw_rl.engine.foreign.hosts import capabilities as foreign
from openclaw_rl.engine.pool.hosts import check_pool, is_pool, pool_of_replicas, pool_of_servers
from openclaw_rl.engine.sglang.dialect import SglangDialect
from openclaw_rl.engine.sglang.server import sglang_host
from openclaw_rl.engine.vllm.dialect import VllmDialect
from openclaw_rl.engine.vllm.server import vllm_host
from openclaw_rl.engine.worker.hosts import EMBEDDED, SCRIPTED, START_TIMEOUT_S, embedded_host, scripted_host
from openclaw_rl.errors import ConfigError
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
    start_timeout_s: float = START_TIMEOUT_S
    """How long it may take to start where nobody says."""
    attaches: bool = False
    """`engine.url` may name one that somebody else runs."""


ENGINES: Mapping[EngineType, EngineKind] = {
    "embedded": EngineKind(EMBEDDED, embedded_host),
    "fireworks": EngineKind(CLOUD, cloud_host),
    "scripted": EngineKind(SCRIPTED, scripted_host),
    "sglang": EngineKind(foreign(SglangDialect()), sglang_host, FOREIGN_START_TIMEOUT_S, attaches=True),
    "tinker": EngineKind(CLOUD, cloud_host),
    "vllm": EngineKind(foreign(VllmDialect()), vllm_host, FOREIGN_START_TIMEOUT_S, attaches=True),
}


def capabilities_of(config: EngineConfig) -> Capabilities:
    """What the configured engine can do; nothing is started."""
    return ENGINES[config.type].capabilities


def check_engine(config: EngineConfig) -> None:
    """`ConfigError` for engines that cannot be had as configured."""
    check_pool(config)
    if config.urls and not ENGINES[config.type].attaches:
        able = " or ".join(name for name, kind in ENGINES.items() if kind.attaches)
        raise ConfigError(
            f"engine.urls attaches to servers, and {config.type} is an engine that is started here: engine.replicas "
            f"starts several; engine.type={able} can be attached to"
        )


def second_engine(config: EngineConfig, gpu_ids: Sequence[int]) -> EngineConfig:
    """One of the same kind for other weights, started here: what names the place of the first is not its.

    Beside servers that run already, and services, it is the embedded one. Without `gpu_ids` it shares the first GPU.
    """
    gpus = tuple(gpu_ids) or config.gpu_ids[:1]
    place = {"url": None, "urls": (), "port": 0, "api_key": None, "served_model": None, "adapter_dir": None}
    spread = {"tensor_parallel": max(1, len(gpus))}
    is_started = config.url is None and not config.urls and capabilities_of(config).computes_here
    return config.model_copy(
        update={
            **place,
            "type": config.type if is_started else "embedded",
            "replicas": 1,
            "gpu_ids": gpus,
            "vllm": config.vllm.model_copy(update=spread),
            "sglang": config.sglang.model_copy(update=spread),
        }
    )


def start_timeout_s(config: EngineConfig) -> float:
    """How long the configured engine may take until it answers."""
    return config.start_timeout_s or ENGINES[config.type].start_timeout_s


def make_host(
    config: EngineConfig, model: ModelFiles, socket: Path, *, name: str = "engine", desk: ServiceDesk | None = None
) -> EngineHost:
    """The configured engine on these weights, or several as one; `desk` leads to a service. Made inside a running event
    loop."""
    check_engine(config)
    if desk is not None:
        return cloud_host(config, model, socket, name=name, desk=desk)
    kind = ENGINES[config.type]
    if is_pool(config):
        pool = pool_of_servers if config.urls else pool_of_replicas
        return pool(config, socket, lambda one, path, place: kind.make(one, model, path, name=place), name=name)
    return kind.make(config, model, socket, name=name)

"""Settings -> a host over a server of others: one that is started here, or one that runs at `engine.url`."""

from __future__ import annotations

import os
import secrets
import socket as sockets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.backoff import Backoff
from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.foreign.dialect import ServerDialect
from openclaw_rl.engine.foreign.engine import ForeignEngine
from openclaw_rl.engine.worker.connections import Connections
from openclaw_rl.engine.worker.life import ProcessLaunch, UrlLaunch
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.types import Capabilities

TOP_K = 20
START_TIMEOUT_S = 1800.0
"""Loading tens of gigabytes, compiling and capturing graphs takes many minutes."""
_GRACE_S = 20.0
_MAX_IDLE_S = 3.0
"""Their servers close a connection that was idle for five seconds."""
_HEALTH = "/health"

_EMBEDDED_ALONE = ("weights", "share_heads")
"""Settings that a server of others cannot follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """How a server is started."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


MakeCommand = Callable[[EngineConfig, ModelFiles, Path, int], ServerCommand]
"""From the settings, the model's files, a folder of its own and the port."""


def capabilities(dialect: ServerDialect) -> Capabilities:
    return Capabilities(
        reports_checksum=False,
        scores=True,
        top_k=TOP_K,
        hot_adapters=True,
        full_weights=False,
        logprobs_changed_by=dialect.logprobs_changed_by,
    )


def foreign_host(
    config: EngineConfig, model: ModelFiles, socket: Path, *, name: str, dialect: ServerDialect, command: MakeCommand
) -> Supervisor:
    """`socket` is where a worker of ours would listen: the folders of this engine stand beside it."""
    _check(config, dialect)
    place = socket.with_suffix("")
    adapters = place.with_name(f"{place.name}-adapters")
    if config.adapter_dir is not None:
        adapters = config.adapter_dir / adapters.name
    if config.url is not None:
        url = config.url.rstrip("/")
        key = None if config.api_key is None else config.api_key.get_secret_value()
        port = 0
    else:
        port = _port(config.port)
        url, key = f"http://127.0.0.1:{port}", secrets.token_hex(16)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    engine = ForeignEngine(
        Connections(url, headers=headers, max_idle_s=_MAX_IDLE_S),
        dialect,
        model,
        adapters,
        max_active=config.max_active,
        max_queued=config.max_queued,
        max_rank=config.max_lora_rank,
        is_ours=config.url is None,
        served_model=config.served_model,
    )
    launch: ProcessLaunch | UrlLaunch
    if config.url is not None:
        launch = UrlLaunch(is_missing=engine.is_missing, is_gone=engine.is_gone)
    else:
        started = command(config, model, place, port)
        keeper = (sys.executable, "-m", "openclaw_rl.engine.foreign.keeper", url + _HEALTH)
        own_key = {dialect.key_variable: key or ""}
        launch = ProcessLaunch(command=(*keeper, *started.command), environment={**started.environment, **own_key})
    return Supervisor(
        launch,
        engine,
        welcome=engine.welcome,
        capabilities=capabilities(dialect),
        name=name,
        start_timeout_s=config.start_timeout_s or START_TIMEOUT_S,
        wait_s=config.wait_s,
        max_waiting=config.max_waiting,
        backoff=Backoff(first_s=config.backoff_s, longest_s=config.max_backoff_s),
        grace_s=_GRACE_S,
    )


def _check(config: EngineConfig, dialect: ServerDialect) -> None:
    plain = EngineConfig()
    for setting in _EMBEDDED_ALONE:
        if getattr(config, setting) != getattr(plain, setting):
            raise ConfigError(
                f"engine.{setting} is for the embedded engine, and {dialect.name} cannot follow it; remove it"
            )


def _port(wanted: int) -> int:
    """A free port of this machine alone, or the one that was asked for."""
    with sockets.socket() as free:
        free.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            free.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise ConfigError(
                f"engine.port={wanted} cannot be used ({os.strerror(error.errno or 0)}): choose another, or 0 for any "
                f"free one; a server that runs there already is used with engine.url=http://127.0.0.1:{wanted}"
            ) from None
        return int(free.getsockname()[1])

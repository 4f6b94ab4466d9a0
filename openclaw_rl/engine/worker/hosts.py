"""The engines that run as processes of ours: what each can do, and the command that starts it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from openclaw_rl.backoff import Backoff
from openclaw_rl.config import EngineConfig, ScriptedReply
from openclaw_rl.config.text import read_file
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.types import Capabilities, Json

EMBEDDED = Capabilities(
    reports_checksum=True,
    scores=True,
    top_k=20,
    hot_adapters=True,
    full_weights=True,
    hidden=True,
)
SCRIPTED = replace(EMBEDDED, has_weights=False, hidden=False)

START_TIMEOUT_S = 120.0

_EMBEDDED_OPTIONS = (
    *("device", "dtype", "weights", "threads", "context_window"),
    *("kv_bytes", "kv_after_update", "max_active", "max_queued", "max_adapters", "prefill_chunk", "gpu_ids"),
)
"""The settings that the embedded worker takes, by the names that its own options have."""


def embedded_host(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str) -> Supervisor:
    options = {name: getattr(config, name) for name in _EMBEDDED_OPTIONS}
    command = worker_command("openclaw_rl.engine.embedded", socket, ("--model", str(model.path)), options)
    return _supervised(command, config, socket, EMBEDDED, name)


def scripted_host(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str) -> Supervisor:
    script = config.scripted
    replies = (*(_read_script(script.script) if script.script else ()), *script.replies)
    options: dict[str, Json] = {
        "replies": [reply.model_dump(mode="json", exclude_none=True) for reply in replies],
        "tokens_per_s": script.tokens_per_s,
    }
    if config.context_window is not None:
        options["context_window"] = config.context_window
    folder = ("--tokenizer", str(model.tokenizer_path))
    return _supervised(
        worker_command("openclaw_rl.engine.scripted", socket, folder, options), config, socket, SCRIPTED, name
    )


def worker_command(module: str, socket: Path, folder: tuple[str, str], options: Mapping[str, Json]) -> list[str]:
    """How to start a worker that listens on `socket`."""
    return [sys.executable, "-m", module, "--socket", str(socket), *folder, "--options", json.dumps(options)]


def _supervised(
    command: list[str], config: EngineConfig, socket: Path, capabilities: Capabilities, name: str
) -> Supervisor:
    return Supervisor.of_worker(
        command,
        socket,
        capabilities=capabilities,
        name=name,
        start_timeout_s=config.start_timeout_s or START_TIMEOUT_S,
        wait_s=config.wait_s,
        max_waiting=config.max_waiting,
        backoff=Backoff(first_s=config.backoff_s, longest_s=config.max_backoff_s),
    )


def _read_script(path: Path) -> tuple[ScriptedReply, ...]:
    try:
        return TypeAdapter(tuple[ScriptedReply, ...]).validate_python(read_file(path))
    except ValidationError as error:
        raise ConfigError(f"{path} must be a list of {{match, reply}}: {error}") from None

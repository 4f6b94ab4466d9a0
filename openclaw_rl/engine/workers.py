"""The engine types that run as worker processes: settings and a model to the command line of a worker.

A new engine is one more entry in `_WORKERS`. Starting and watching the process is the supervisor's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from openclaw_rl.config import EngineConfig, EngineType, ScriptedReply
from openclaw_rl.config.text import read_file
from openclaw_rl.errors import ConfigError
from openclaw_rl.types import Json


def worker_command(config: EngineConfig, *, model: Path, tokenizer: Path, socket: Path) -> list[str]:
    """How to start the configured engine for the model in these folders, listening on `socket`."""
    module, folder, options = _WORKERS[config.type](config, model, tokenizer)
    return [sys.executable, "-m", module, "--socket", str(socket), *folder, "--options", json.dumps(options)]


def _embedded(config: EngineConfig, model: Path, _: Path) -> tuple[str, list[str], dict[str, Json]]:
    options = {name: getattr(config, name) for name in _EMBEDDED_OPTIONS}
    return "openclaw_rl.engine.embedded", ["--model", str(model)], options


_EMBEDDED_OPTIONS = (
    *("device", "dtype", "weights", "threads", "context_window"),
    *("kv_bytes", "kv_after_update", "max_active", "max_queued", "prefill_chunk"),
)
"""The settings that the embedded worker takes, by the names that its own options have."""


def _scripted(config: EngineConfig, _: Path, tokenizer: Path) -> tuple[str, list[str], dict[str, Json]]:
    script = config.scripted
    replies = (*(_read_script(script.script) if script.script else ()), *script.replies)
    options: dict[str, Json] = {
        "replies": [reply.model_dump(mode="json", exclude_none=True) for reply in replies],
        "tokens_per_s": script.tokens_per_s,
    }
    if config.context_window is not None:
        options["context_window"] = config.context_window
    return "openclaw_rl.engine.scripted", ["--tokenizer", str(tokenizer)], options


def _read_script(path: Path) -> tuple[ScriptedReply, ...]:
    try:
        return TypeAdapter(tuple[ScriptedReply, ...]).validate_python(read_file(path))
    except ValidationError as error:
        raise ConfigError(f"{path} must be a list of {{match, reply}}: {error}") from None


_WORKERS: Mapping[EngineType, Callable[[EngineConfig, Path, Path], tuple[str, list[str], dict[str, Json]]]] = {
    "embedded": _embedded,
    "scripted": _scripted,
}

"""Settings to the command lines of workers."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.engine.scripted import ScriptedOptions
from openclaw_rl.engine.workers import worker_command
from openclaw_rl.errors import ConfigError

MODEL, TOKENIZER, SOCKET = Path("/models/m"), Path("/models/t"), Path("/run/e.sock")


def command(config: EngineConfig) -> tuple[list[str], object]:
    """What comes before the options, and the options."""
    *start, name, options = worker_command(config, model=MODEL, tokenizer=TOKENIZER, socket=SOCKET)
    assert name == "--options"
    return start, json.loads(options)


def test_the_embedded_worker_gets_all_its_options() -> None:
    start, options = command(EngineConfig())
    module = ["-m", "openclaw_rl.engine.embedded"]
    assert start == [sys.executable, *module, "--socket", "/run/e.sock", "--model", "/models/m"]
    assert EmbeddedOptions.from_json(options) == EmbeddedOptions(), "settings and worker have the same defaults"
    assert isinstance(options, dict)
    assert set(options) == {field.name for field in fields(EmbeddedOptions)}


def test_every_setting_reaches_the_embedded_worker() -> None:
    settings = {
        "device": "cpu",
        "dtype": "bfloat16",
        "weights": "quantised",
        "threads": 3,
        "context_window": 4096,
        "kv_bytes": 1 << 30,
        "kv_after_update": "exact",
        "max_active": 5,
        "max_queued": 6,
        "prefill_chunk": 7,
    }
    options = EmbeddedOptions.from_json(command(EngineConfig(**settings))[1])  # type: ignore[arg-type]
    assert asdict(options) == settings


def test_the_scripted_worker_gets_its_script(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text('[{"match": "a", "reply": "from the file"}]')
    raw = {"script": script, "replies": [{"match": "b", "reply": "from the settings"}], "tokens_per_s": 5}
    config = EngineConfig.model_validate({"type": "scripted", "scripted": raw, "context_window": 99})
    start, options = command(config)
    module = ["-m", "openclaw_rl.engine.scripted"]
    assert start == [sys.executable, *module, "--socket", "/run/e.sock", "--tokenizer", "/models/t"]
    got = ScriptedOptions.from_json(options)
    assert [reply.match for reply in got.replies] == ["a", "b"]
    assert (got.tokens_per_s, got.context_window) == (5, 99)
    script.write_text('{"match": "a"}')
    with pytest.raises(ConfigError, match="list of"):
        command(config)

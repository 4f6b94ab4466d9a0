"""A CPU that advertises what it cannot do: the probe dies of SIGILL, the product serves in float32."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.server import Server
from tests.tiny import build_tiny_model

# Python runs a module of this name before anything else: the probe, and only the probe, meets a bad instruction.
_BAD_CPU = """
import os, signal, sys
if "openclaw_rl.engine.embedded.cpu.dtype_probe" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGILL)
"""


def test_a_probe_that_dies_of_sigill_costs_only_the_precision(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_BAD_CPU)
    model = build_tiny_model(tmp_path / "model")
    settings = ("engine.type=embedded", "engine.device=cpu", "engine.dtype=bfloat16", f"model.checkpoint_path={model}")
    search_path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with Server(tmp_path / "data", *settings, env={"PYTHONPATH": search_path}) as server:
        answer = server.chat("hi", max_tokens=4)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] >= 1
        log = (server.data_dir / "run" / "log.jsonl").read_text().splitlines()
        said = {record["event"]: record.get("facts", {}) for record in map(json.loads, log)}
        assert any("SIGILL" in event and "float32" in event for event in said)
        assert not any(event.startswith("engine ended") for event in said)
        assert said["ready"]["dtype"] == "float32"
        assert server.stop() == 0

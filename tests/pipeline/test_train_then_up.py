"""Trained without serving, served afterwards: the last version of the chain answers, and what comes builds on it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.store import StoreReader
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model
from tests.unit.cli.recorded import make_turns, record

pytestmark = pytest.mark.timeout(240)


def test_the_next_start_releases_what_was_trained_alone(tmp_path: Path) -> None:
    model, data = build_tiny_model(tmp_path / "model"), tmp_path / "data"
    asyncio.run(record(data, make_turns(model, 2)))
    settings = (f"model.name={model}", "training.batch_size=1", "training.lora_rank=2")
    alone = [sys.executable, "-m", "openclaw_rl", "train", "--data-dir", str(data), *settings]
    subprocess.run([*alone, "--checkpoint-dir", str(tmp_path / "checkpoints")], check=True, capture_output=True)
    reader = StoreReader.open(data)
    assert [(one.parent, one.state) for one in reader.versions()] == [(0, "candidate"), (1, "candidate")]

    gate = (*OPEN_GATE, "training.truncated=score", "training.max_wait_s=0.1")
    with Server(data, "engine.type=embedded", *settings, *gate) as server:
        server.wait_until(lambda: reader.versions()[1].state == "live", timeout_s=120.0)
        server.wait_until(lambda: reader.versions()[0].state == "retired")
        proof = reader.versions()[1].gate["proof"]
        assert (proof["reason"], proof["correlation"] > 0.99) == ("", True), "also what was trained elsewhere is proved"
        asked = [{"role": "user", "content": "what is rain"}]
        first = server.chat(asked, max_tokens=8)
        assert first.headers["X-OpenClaw-RL-Version"] == "v2"
        answer = {"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]}
        corrected = server.chat([*asked, answer, {"role": "user", "content": "no, shorter please"}], max_tokens=8)
        assert corrected.status_code == 200, corrected.text
        server.wait_until(lambda: len(reader.versions()) > 2, timeout_s=120.0)
        third = reader.versions()[2]
        assert third.parent == 2, "from the checkpoint in the other folder"
        assert Path(str(third.folder)).parent == data / "versions" / "v3"

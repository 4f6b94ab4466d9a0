"""The whole way on a tiny model: a correction becomes a version, and the next answer carries it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from openclaw_rl.store import StoreReader
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(240)


def has_trainer(server: Server) -> bool:
    assert server.process is not None
    return any("openclaw_rl.train.worker" in one.cmdline() for one in psutil.Process(server.process.pid).children())


def test_a_correction_changes_the_weights_that_answer(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    settings = (
        "engine.type=embedded",
        f"model.name={model}",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.truncated=score",  # a random model never comes to an end
        *OPEN_GATE,
    )
    with Server(tmp_path / "data", *settings) as server:
        asked = [{"role": "user", "content": "what is rain"}]
        first = server.chat(asked, max_tokens=12)
        assert first.headers["X-OpenClaw-RL-Version"] == "v0"
        server.wait_until(lambda: has_trainer(server))  # with the first turn, before there is anything to learn
        said = first.json()["choices"][0]["message"]["content"]
        corrected = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}]
        server.chat(corrected, max_tokens=12)
        reader = StoreReader.open(tmp_path / "data")
        server.wait_until(lambda: any(one.state == "live" for one in reader.versions()), timeout_s=120.0)
        assert server.chat("and what is snow", max_tokens=12).headers["X-OpenClaw-RL-Version"].startswith("v")
        (version, *_) = reader.versions("local")
        (step, *_) = reader.steps("local")
        assert (version.number, step.state, version.parent) == (1, "done", 0)
        assert step.metrics["sample/sampler_gap"] < 1e-3, "trainer and engine compute the same"
        live = [one for one in reader.versions() if one.state == "live"][-1]
        assert live.gate["proof"]["correlation"] > 0.999, "the engine serves what was trained"
        assert live.gate["proof"]["num_tokens"] >= 256
        assert server.chat("what is ice", max_tokens=12).headers["X-OpenClaw-RL-Version"] == live.label
        server.kill()
        server.start()
        live = [one for one in reader.versions() if one.state == "live"][-1]
        assert server.chat("what is fog", max_tokens=12).headers["X-OpenClaw-RL-Version"] >= live.label

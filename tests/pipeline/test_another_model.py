"""One data directory under two models of the same shape: each answers with what it learned itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from openclaw_rl.store import StoreReader
from openclaw_rl.types import TRAINING_PAUSED
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(300)

SETTINGS = (
    "engine.type=embedded",
    "training.batch_size=1",
    "training.max_wait_s=0.1",
    "training.truncated=score",  # a random model never comes to an end
    *OPEN_GATE,
)


def test_what_one_model_learned_waits_while_another_answers(tmp_path: Path) -> None:
    data, models = tmp_path / "data", [build_tiny_model(tmp_path / "one"), tmp_path / "two"]
    shutil.copytree(models[0], models[1])
    first, second = (f"model.checkpoint_path={model}" for model in models)
    with Server(data, first, *SETTINGS) as server:
        reader = StoreReader.open(data)
        learn(server)
        server.wait_until(lambda: [one.state for one in reader.versions()] == ["live"], timeout_s=120.0)
        assert server.stop() == 0
    with Server(data, second, *SETTINGS) as server:
        assert answering(server) == "v0"
        learn(server)
        server.wait_until(lambda: [one.state for one in reader.versions()] == ["live"], timeout_s=120.0)
        assert answering(server) == "v2"
        assert [(one.number, one.parent) for one in reader.versions()] == [(2, 0)]
        assert server.stop() == 0
    with Server(data, first, *SETTINGS, "training.lora_rank=2") as server:
        assert answering(server) == "v1"
        learn(server)
        server.wait_until(lambda: reader.flag(TRAINING_PAUSED) is not None, timeout_s=60.0)
        assert "v1 was made with training.lora_rank=16, not 2" in str(reader.flag(TRAINING_PAUSED))
        assert server.stop() == 0
    assert [one.state for one in reader.versions(every_model=True)] == ["live", "live"]


def answering(server: Server) -> str:
    return str(server.chat("what is ice", max_tokens=8).headers["X-OpenClaw-RL-Version"])


def learn(server: Server) -> None:
    asked = [{"role": "user", "content": "what is rain"}]
    said = server.chat(asked, max_tokens=8).json()["choices"][0]["message"]["content"]
    corrected = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}]
    server.chat(corrected, max_tokens=8)

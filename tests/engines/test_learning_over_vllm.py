"""A whole learning cycle over real vLLM, as a person has it: chat, correction, step, gate, live, the next answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.store import StoreReader
from tests.server import OPEN_GATE, Server

pytestmark = [pytest.mark.engines, pytest.mark.timeout(2400)]


def test_a_correction_goes_live_in_vllm(tmp_path: Path) -> None:
    settings = (
        "engine.type=vllm",
        "engine.context_window=2048",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.truncated=score",
        *OPEN_GATE,
    )
    server = Server(tmp_path / "data", *settings)
    server.timeout_s = 600.0  # the gate asks beside us, on two cores
    try:
        server.start(wait=False)
        server.wait_until_ready(timeout_s=600.0)
        asked = [{"role": "user", "content": "What is rain?"}]
        first = server.chat(asked, max_tokens=24)
        assert first.headers["X-OpenClaw-RL-Version"] == "v0"
        said = first.json()["choices"][0]["message"]["content"]
        correction = "No, shorter please. Answer in one short sentence."
        following = [{"role": "assistant", "content": said}, {"role": "user", "content": correction}]
        server.chat([*asked, *following], max_tokens=24)
        reader = StoreReader.open(tmp_path / "data")
        server.wait_until(lambda: any(one.state == "live" for one in reader.versions()), timeout_s=1500.0)
        (step, *_) = reader.steps("local")
        assert step.state == "done"
        assert step.metrics["sample/sampler_gap"] < 5e-3, "trainer and engine compute the same"
        live = next(one for one in reader.versions() if one.state == "live")
        assert live.gate["proof"]["correlation"] > 0.99, "vLLM serves what was trained"
        assert live.gate["proof"]["checksum"] == "not reported by this engine"
        answer = server.chat("What is snow?", max_tokens=24)
        assert answer.headers["X-OpenClaw-RL-Version"] == live.label
        bent = server.chat("What is ice?", max_tokens=8, top_p=0.9)
        assert bent.status_code == 200
        turns = [turn for session in reader.sessions() for turn in reader.turns(session.session.id)]
        (turn,) = [turn for turn in turns if turn.sampling.top_p < 1]
        assert turn.skip == "not_exact"
        assert server.stop() == 0
    finally:
        server.close()

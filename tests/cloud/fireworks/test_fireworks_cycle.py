"""`openclaw-rl up --backend fireworks`: chat, correction, step, gate, live; and what may go wrong."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.store import StoreReader
from tests.cloud.fireworks.services import KEY, LocalFireworks
from tests.cloud.test_cycle import ASKED, correct, live, refused, settings_of
from tests.server import Server


@pytest.fixture
def server(service: LocalFireworks, tiny: Path, tmp_path: Path) -> Iterator[Server]:
    """The SDK is in a folder of its own, which workers alone see."""
    found = importlib.util.find_spec("fireworks")
    assert found is not None
    assert found.submodule_search_locations is not None
    sdk = Path(next(iter(found.submodule_search_locations))).parent
    ours = (
        *("training.backend=fireworks", "engine.type=fireworks", f"training.fireworks_url={service.url}"),
        *(f"training.cloud.sdk_path={sdk}", "engine.context_window=256", "engine.wait_s=20"),
    )
    made = Server(tmp_path / "data", *settings_of(service, tiny), *ours, env={"FIREWORKS_API_KEY": KEY})
    made.env["PYTHONPATH"] = ""
    made.timeout_s = 120.0
    yield made
    made.close()


def used_once(server: Server) -> bool:
    steps = StoreReader.open(server.data_dir).steps("local")
    used = Counter(sample for step in steps if step.state == "done" for sample in step.sample_ids)
    return set(used.values()) == {1}


def test_a_correction_goes_live(server: Server, service: LocalFireworks) -> None:
    server.start()
    assert correct(server) == "v0"
    server.wait_until(lambda: bool(live(server)), timeout_s=200.0)
    reader = StoreReader.open(server.data_dir)
    (version,) = [one for one in reader.versions() if one.state == "live"]
    assert version.weights is not None
    assert version.weights.uri.startswith("fireworks://tester/run-")
    (step, *_) = reader.steps("local")
    assert step.metrics["sample/sampler_gap"] < 1.0
    assert step.metrics["cost/usd"] > 0
    assert version.gate["proof"]["correlation"] > 0.99
    assert server.chat("What is snow?", max_tokens=8).headers["X-OpenClaw-RL-Version"] == version.label
    assert server.stop() == 0
    server.start()
    again = server.chat("What is snow?", max_tokens=8)
    assert again.headers["X-OpenClaw-RL-Version"] == version.label, "what was live is live after a start"


def test_what_cannot_be_is_one_sentence(server: Server, service: LocalFireworks) -> None:
    keyed = {"FIREWORKS_API_KEY": KEY}
    assert "set FIREWORKS_API_KEY" in refused(server, env={"FIREWORKS_API_KEY": ""})
    said = refused(server, env={"FIREWORKS_API_KEY": "fw-other"})
    assert "refuses the key (status 401): set FIREWORKS_API_KEY" in said
    said = refused(server, env=keyed, engine__served_model="accounts/fireworks/models/nothing")
    assert "does not take 'accounts/fireworks/models/nothing' as a base model" in said
    assert "set engine.served_model" in said
    before = len(service.diary())
    assert "What leaves this machine" in refused(server, env=keyed, training__cloud__consent="false")
    assert len(service.diary()) == before, "nothing was asked before anybody agreed"
    service.order(without=["echo"])
    assert "no version could be proved" in refused(server, env=keyed)
    said = refused(server, env={**keyed, "PYTHONPATH": ""}, training__cloud__sdk_path="/nowhere")
    assert "pip install --target" in said
    assert "training.cloud.sdk_path" in said


def test_without_likely_tokens_it_is_said_and_hints_teach_token_by_token(
    server: Server, service: LocalFireworks
) -> None:
    service.order(without=["likely"], most=5)
    server.env["OPENCLAW_RL_CRASH_AT"] = "train.reported"
    server.start()
    told = (server.data_dir / "output.txt").read_text()
    assert "hints are distilled token by token" in told
    assert "the gate estimates entropy from those" in told
    answer = server.chat(ASKED, max_tokens=4, logprobs=True, top_logprobs=8)
    assert answer.status_code == 400, "no more than the service says"
    before = len(service.diary("save"))
    correct(server)
    assert server.process is not None
    assert server.process.wait(timeout=200) < 0
    assert len(service.diary("save")) > before, "the step was taken when it died"
    server.start(env={"OPENCLAW_RL_CRASH_AT": ""})
    server.wait_until(lambda: bool(live(server)), timeout_s=200.0)
    assert used_once(server), "a killed gateway trains nothing twice"


def test_a_service_that_is_down_loses_nothing(server: Server, service: LocalFireworks) -> None:
    server.start()
    correct(server)
    service.order(down=True)
    answer = server.chat("What is snow?", max_tokens=8)
    assert answer.status_code == 503
    assert "has not answered for 20 s" in answer.text
    service.kill()  # and it forgets every session
    service.start()
    assert server.chat("What is snow?", max_tokens=8).status_code == 200
    server.wait_until(lambda: bool(live(server)), timeout_s=250.0)
    assert used_once(server)

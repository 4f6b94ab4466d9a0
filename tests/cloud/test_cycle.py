"""`openclaw-rl up --backend tinker` as a person has it: chat, correction, step, gate, live; and what may go wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from transformers import AutoTokenizer

from openclaw_rl.store import StoreReader
from openclaw_rl.types import TRAINING_PAUSED
from tests.cloud.services import KEY, NAME, LocalService
from tests.server import OPEN_GATE, Server

ASKED = [{"role": "user", "content": "What is rain?"}]
CORRECTION = "No, shorter please. Answer in one short sentence."


def settings_of(service: LocalService, tiny: Path) -> tuple[str, ...]:
    return (
        f"model.name={tiny}",
        f"engine.served_model={NAME}",
        f"training.tinker_url={service.url}",
        "training.cloud.consent=true",
        *("training.cloud.price_prefill=1", "training.cloud.price_sample=2", "training.cloud.price_train=3"),
        *("training.backend=tinker", "engine.type=tinker", "engine.wait_s=8", "release.probation=false"),
        *("training.batch_size=1", "training.max_wait_s=0.1", "training.truncated=score", "training.lora_rank=4"),
        *("training.anchors=1", "training.exercises=0", "training.learning_rate=0.01", "evaluation.judge=rules"),
        *("training.demonstrations=off",),
        *OPEN_GATE,
    )


@pytest.fixture
def server(service: LocalService, tiny: Path, tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data", *settings_of(service, tiny), env={"TINKER_API_KEY": KEY})
    made.timeout_s = 120.0
    yield made
    made.close()


def correct(server: Server) -> str:
    """A chat and a correction; the version that answered."""
    first = server.chat(ASKED, max_tokens=12)
    assert first.status_code == 200, first.text
    said = first.json()["choices"][0]["message"]["content"]
    following = [{"role": "assistant", "content": said or "…"}, {"role": "user", "content": CORRECTION}]
    assert server.chat([*ASKED, *following], max_tokens=12).status_code == 200
    return first.headers["X-OpenClaw-RL-Version"]


def command(server: Server, *words: str) -> str:
    line = (sys.executable, "-m", "openclaw_rl", *words, "--data-dir", str(server.data_dir))
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def live(server: Server) -> list[str]:
    return [one.label for one in StoreReader.open(server.data_dir).versions() if one.state == "live"]


def test_a_correction_goes_live(server: Server, service: LocalService) -> None:
    server.start()
    assert correct(server) == "v0"
    server.wait_until(lambda: bool(live(server)), timeout_s=200.0)
    reader = StoreReader.open(server.data_dir)
    (version,) = [one for one in reader.versions() if one.state == "live"]
    assert version.weights is not None
    assert version.weights.uri.startswith("tinker://")
    (step, *_) = reader.steps("local")
    assert step.metrics["sample/sampler_gap"] < 1.0
    assert step.metrics["cost/usd"] > 0
    proof = version.gate["proof"]
    assert proof["correlation"] > 0.99
    assert proof["checksum"] == "not reported by this engine"
    answer = server.chat("What is snow?", max_tokens=8)
    assert answer.headers["X-OpenClaw-RL-Version"] == version.label
    figures = httpx.get(f"{server.url}/metrics", headers=server.headers).text
    assert re.search(r'openclaw_rl_service_usd\{when="today"\} 0\.0*[1-9]', figures)
    listed = json.loads(command(server, "versions", "--json"))
    assert listed[0]["metrics"]["cost/train_tokens"] > 0
    assert server.stop() == 0
    server.start()
    again = server.chat("What is snow?", max_tokens=8)
    assert again.headers["X-OpenClaw-RL-Version"] == version.label, "what was live is live after a start"


def test_what_is_private_is_only_answered(server: Server, service: LocalService, tiny: Path) -> None:
    """Neither a conversation with X-No-Train nor a turn with a secret is trained on, or read by a teacher."""
    server.settings += ("store.redact=true",)
    server.start()
    before = len(service.diary())
    private, mail = "my walnut cupboard", "someone@example.org"
    for said, headers in ((f"Where is {private}?", {"X-No-Train": "session"}), (f"Write to {mail} about rain.", {})):
        asked = [{"role": "user", "content": said}]
        first = server.chat(asked, max_tokens=12, headers=headers)
        assert first.status_code == 200
        answer = first.json()["choices"][0]["message"]["content"] or "…"
        following = [{"role": "assistant", "content": answer}, {"role": "user", "content": CORRECTION}]
        assert server.chat([*asked, *following], max_tokens=12, headers=headers).status_code == 200
    correct(server)
    server.wait_until(lambda: bool(live(server)), timeout_s=200.0)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    asked_of_it = service.diary()[before:]

    def texts(*, learned: bool) -> list[str]:
        reads = [one for one in asked_of_it if "read" in one]
        return [
            str(tokenizer.decode(ids))
            for one in reads
            if (one["event"] != "sample" or one["is_scored"]) is learned
            for ids in one["read"]
        ]

    answered, learned = texts(learned=False), texts(learned=True)
    assert any("What is rain?" in one for one in learned), "the ordinary conversation was trained on"
    for secret in (private, mail):
        assert any(secret in one for one in answered), "who answers has to read"
        assert not any(secret in one for one in learned)


def test_nothing_is_trained_over_the_budget(server: Server, service: LocalService) -> None:
    server.settings += ("training.cloud.daily_budget=0.0001",)
    server.start()
    before = len(service.diary("optim"))
    correct(server)
    rows = StoreReader.open(server.data_dir)
    server.wait_until(lambda: "daily budget" in (rows.flag(TRAINING_PAUSED) or ""), timeout_s=100.0)
    assert len(service.diary("optim")) == before
    assert server.chat("What is snow?", max_tokens=8).status_code == 200


def refused(server: Server, *, env: dict[str, str], **settings: str) -> str:
    """What a start that is refused says, in one line."""
    changed = tuple(f"{key.replace('__', '.')}={value}" for key, value in settings.items())
    line = [sys.executable, "-m", "openclaw_rl", "up", "--data-dir", str(server.data_dir), *server.settings, *changed]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **env}, stdin=subprocess.DEVNULL)
    assert done.returncode == 2, done.stderr
    (*_, said) = done.stderr.strip().splitlines()
    return said


def test_what_cannot_be_is_one_sentence(server: Server, service: LocalService) -> None:
    keyed = {"TINKER_API_KEY": KEY}
    assert "set TINKER_API_KEY" in refused(server, env={"TINKER_API_KEY": ""})
    assert "refuses the key (status 401): set TINKER_API_KEY" in refused(server, env={"TINKER_API_KEY": "tml-other"})
    said = refused(server, env=keyed, engine__served_model="Qwen/Nothing")
    assert f"has no base model 'Qwen/Nothing'; it has {NAME}: set model.name" in said
    said = refused(server, env=keyed, training__lora_target_modules="q_proj")
    assert "training.lora_target_modules=q_proj: a service trains all projections" in said
    said = refused(server, env=keyed, training__teacher="ema")
    assert "training.teacher=ema: training.backend=tinker can do null or base or current only" in said
    before = len(service.diary())
    said = refused(server, env=keyed, training__cloud__consent="false")
    assert "What leaves this machine" in said
    assert "training.cloud.consent=true" in said
    assert len(service.diary()) == before, "nothing was asked before anybody agreed"
    service.order(without=["prompt_logprobs"])
    assert "no version could be proved" in refused(server, env=keyed)


def test_an_sdk_in_a_folder_of_its_own(server: Server, service: LocalService) -> None:
    """As for servers that need another version of it."""
    found = importlib.util.find_spec("tinker")
    assert found is not None
    assert found.origin is not None
    server.env["PYTHONPATH"] = ""
    server.settings += (f"training.cloud.sdk_path={Path(found.origin).parents[1]}",)
    server.start()
    assert server.chat("What is snow?", max_tokens=8).status_code == 200


def test_a_killed_gateway_trains_nothing_twice(server: Server, service: LocalService) -> None:
    server.env["OPENCLAW_RL_CRASH_AT"] = "train.reported"
    before = len(service.diary("save"))
    server.start()
    correct(server)
    assert server.process is not None
    assert server.process.wait(timeout=200) < 0
    saved = service.diary("save")[before:]
    assert saved, "the step was taken when it died"
    server.start(env={"OPENCLAW_RL_CRASH_AT": ""})
    server.wait_until(lambda: bool(live(server)), timeout_s=200.0)
    reader = StoreReader.open(server.data_dir)
    used = Counter(sample for step in reader.steps("local") if step.state == "done" for sample in step.sample_ids)
    assert set(used.values()) == {1}
    (version,) = [one for one in reader.versions() if one.state == "live"]
    assert version.weights is not None
    epochs = 3
    steps = {one["path"]: one["num_steps"] for one in service.diary("save")}
    assert steps[version.weights.uri] == epochs * len(used), "each snapshot has its own steps, and no others"


def test_a_service_that_is_down_loses_nothing(server: Server, service: LocalService) -> None:
    server.start()
    correct(server)
    service.order(down=True)
    refused = server.chat("What is snow?", max_tokens=8)
    assert refused.status_code == 503
    assert "has not answered for 8 s" in refused.text
    service.kill()  # and it forgets every session
    service.start()
    assert server.chat("What is snow?", max_tokens=8).status_code == 200
    server.wait_until(lambda: bool(live(server)), timeout_s=250.0)
    reader = StoreReader.open(server.data_dir)
    used = Counter(sample for step in reader.steps("local") if step.state == "done" for sample in step.sample_ids)
    assert used
    assert set(used.values()) == {1}
    service.kill()
    server.kill()
    server.start(wait=False)  # in the middle of an outage
    address = server.data_dir / "run" / "address.json"
    server.wait_until(address.exists, timeout_s=120.0)
    server.url = json.loads(address.read_text())["url"]
    assert "is believed" in (server.data_dir / "output.txt").read_text()
    service.start()
    assert server.chat("What is ice?", max_tokens=8).headers["X-OpenClaw-RL-Version"] == live(server)[0]

"""Proof and watch for real: engine and trainer on a tiny model, and people who talk while a version goes."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from openclaw_rl.config.learning import TrainingConfig
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import Engine, LearningStore
from openclaw_rl.release.gate.probes import Prober, frozen_probes
from openclaw_rl.release.gate.prove import Proof
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.render import load_renderer
from openclaw_rl.store import StoreReader
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Publication, Version
from tests.factories.orders import order, sample
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, OpenDoor, Rows
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(240)


class Rig:
    """Two versions that a trainer made, and what is needed to prove one."""

    def __init__(self, model: Path, folder: Path, engine: Engine, trainer: LocalTrainer) -> None:
        renderer = load_renderer(model, "tiny", model)
        prober = Prober(engine, renderer, frozen_probes(renderer), max_tokens=16)
        settings = json.loads(TrainingConfig().model_dump_json())
        self.engine, self.folder = engine, folder
        self.proving = Proving(engine, prober, trainer, settings=settings, min_tokens=256, min_correlation=0.99)

    def version(self, number: int, *, made_as: int | None = None) -> Version:
        """`made_as`: whose files lie where this version's should."""
        path = self.folder / f"v{made_as or number}" / "weights"
        sha256 = folder_sha256(path)
        return Version(
            line="local",
            number=number,
            parent=0,
            state="candidate",
            created_at=0.0,
            weights=folder_ref(str(path), sha256),
        )

    async def publish(self, version: Version) -> None:
        await self.engine.publish(
            Publication(version=version.label, weights=folder_ref(str(version.folder), version.sha256), live=False)
        )

    async def prove(self, version: Version, parent: Version | None = None) -> Proof:
        return await self.proving.prove(version, parent)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    model = build_tiny_model(tmp_path / "model")
    made = TorchTrainer(model, device=torch.device("cpu"), dtype=torch.float32)
    made.step(*order(tmp_path, 1))
    made.step(*order(tmp_path, 2, sample(5), sample(6), parent=str(tmp_path / "v1")))
    engine = await asyncio.to_thread(load_engine, model, EmbeddedOptions())
    trainer = LocalTrainer(model, tmp_path, {"threads": 1})
    try:
        yield Rig(model, tmp_path, engine, trainer)
    finally:
        await trainer.close()
        await engine.close()


async def test_the_engine_serves_what_was_trained(rig: Rig) -> None:
    first, second = rig.version(1), rig.version(2)
    await rig.publish(first)
    await rig.publish(second)
    assert (await rig.engine.state()).checksums == {"v1": first.sha256, "v2": second.sha256}
    for proof in (await rig.prove(first), await rig.prove(second, first)):
        assert proof.reason == ""
        assert proof.correlation > 0.9999
        assert proof.noise < 1e-4 < proof.change


async def test_another_adapter_under_the_right_label_is_found_out(rig: Rig) -> None:
    await rig.publish(rig.version(1, made_as=2))  # the engine has v2 and calls it v1
    proof = await rig.prove(rig.version(1))
    assert proof.reason.startswith("the engine loaded")
    assert proof.correlation < 0.99, "and its numbers say so too"


async def test_files_that_are_changed_behind_the_engines_back_are_found_out(rig: Rig) -> None:
    version = rig.version(1)
    await rig.publish(version)
    folder = str(version.folder)
    shutil.rmtree(folder)
    shutil.copytree(str(rig.version(2).folder), folder)
    proof = await rig.prove(version)
    assert proof.reason.startswith("its files hash to")
    assert proof.correlation < 0.99


def _spoil(folder: Path, how: str) -> None:
    file = folder / "adapter_model.safetensors"
    if how == "flipped":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        return
    tensors = load_file(file)
    name = next(iter(tensors))
    tensors[name] = torch.full_like(tensors[name], torch.nan) if how == "nan" else tensors[name][:, :-1].clone()
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("how", "reason"), [("nan", "not finite"), ("shape", "cannot be loaded"), ("flipped", "has the checksum")]
)
async def test_a_broken_file_is_rejected_with_the_reason_and_kept(rig: Rig, how: str, reason: str) -> None:
    whole = rig.version(1)
    _spoil(Path(str(whole.folder)), how)
    version = whole if how == "flipped" else rig.version(1)
    rows, live = Rows(version), LiveVersions()
    await Releaser(
        cast("LearningStore", rows), rig.engine, OpenDoor(), live, proving=OpenDoor(), keeper=NOWHERE, save_every=1
    ).restore()
    assert rows.rows[1].state == "rejected"
    assert reason in rows.rows[1].reason
    assert (await live.label("local"), (await rig.engine.state()).versions) == (None, ("v0",))
    assert Path(str(rows.rows[1].folder)).exists()


def settings(model: Path) -> tuple[str, ...]:
    return (
        "engine.type=embedded",
        f"model.name={model}",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.max_steps=1",
        "training.truncated=score",  # a random model never comes to an end
        *OPEN_GATE,
        "release.watch=true",
        "release.alarm_odds=20",
    )


class Talker(threading.Thread):
    """Streams answers, one after the other, and notes what becomes of each."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server, self.ended = server, threading.Event()
        self.statuses: list[int] = []
        self.versions: list[str] = []
        self.endings: list[str] = []

    def run(self) -> None:
        body = {"model": "any", "messages": [{"role": "user", "content": "hm"}], "max_tokens": 24, "stream": True}
        headers = {**self.server.headers, "X-Turn-Type": "side"}
        with httpx.Client(timeout=60.0) as client:
            while not self.ended.is_set():
                with client.stream(
                    "POST", f"{self.server.url}/v1/chat/completions", json=body, headers=headers
                ) as answer:
                    self.statuses.append(answer.status_code)
                    self.versions.append(answer.headers.get("X-OpenClaw-RL-Version", ""))
                    self.endings.append("".join(answer.iter_text())[-20:])


def say(server: Server, answer: httpx.Response, *, score: int) -> None:
    told = {"turn_id": answer.headers["X-OpenClaw-RL-Turn"], "score": score}
    httpx.post(f"{server.url}/v1/feedback", json=told, headers=server.headers).raise_for_status()


def correct(server: Server, question: str) -> None:
    asked: list[dict[str, Any]] = [{"role": "user", "content": question}]
    said = server.chat(asked, max_tokens=12).json()["choices"][0]["message"]["content"]
    server.chat(
        [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}],
        max_tokens=12,
    )


def test_a_version_that_people_dislike_goes_by_itself_while_streams_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(data, *settings(build_tiny_model(tmp_path / "model"))) as server:
        reader = StoreReader.open(data)
        for thing in ("rain", "snow"):  # the base model is liked, as far as it is judged
            answer = server.chat(f"what is {thing}", max_tokens=12)
            say(server, answer, score=1)
        correct(server, "what is fog")
        server.wait_until(lambda: any(one.state == "live" for one in reader.versions()), timeout_s=120.0)
        talkers = [Talker(server) for _ in range(3)]
        for talker in talkers:
            talker.start()
        for number in range(12):
            answer = server.chat(f"tell me about number {number}", max_tokens=12)
            if answer.headers["X-OpenClaw-RL-Version"] == "v0":
                break
            say(server, answer, score=-1)
            time.sleep(0.3)
        server.wait_until(lambda: reader.versions()[0].state == "rolled_back", timeout_s=20.0)
        time.sleep(1.0)
        for talker in talkers:
            talker.ended.set()
            talker.join(30.0)
        (version,) = reader.versions()
        assert "were not what the user wanted" in version.reason
        assert server.chat("and now?", max_tokens=12).headers["X-OpenClaw-RL-Version"] == "v0"
        assert {status for talker in talkers for status in talker.statuses} == {200}, "0 refused"
        assert all(ending.endswith("data: [DONE]\n\n") for talker in talkers for ending in talker.endings)
        assert {"v0", "v1"} <= {version for talker in talkers for version in talker.versions}

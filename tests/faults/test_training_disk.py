"""No room for a checkpoint: training pauses and says what helps, chat goes on, and the same step is taken later.

The limit on file sizes of the trainer's process stands for the full disk: a write fails in the middle.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.train.loop import TrainLoop
from openclaw_rl.types import TRAINING_PAUSED
from tests.factories.orders import sample
from tests.factories.stored import put_samples
from tests.faults.processes import gateway
from tests.faults.training_child import make_loop, make_releaser
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(300)


@contextmanager
def full_disk(pid: int, *, room: int) -> Iterator[None]:
    """No file of this process may become larger than `room` bytes."""
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, unlimited[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)


async def comes_true(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true in a minute")


async def test_the_step_is_taken_when_there_is_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a description but not for weights, then for weights but not for the optimiser's state."""
    monkeypatch.setattr("openclaw_rl.train.loop.RETRY", Backoff(first_s=0.1, longest_s=0.1))
    model = build_tiny_model(tmp_path / "model")
    made: list[list[str]] = []
    for name in ("roomy", "full"):
        folder = tmp_path / name / "versions"
        trainer = LocalTrainer(model, folder, {"device": "cpu", "threads": 1})
        try:
            async with await SqliteStore.open(tmp_path / name) as store:
                await put_samples(store, [sample(index) for index in range(6)])
                releaser = make_releaser(store)
                await releaser.restore()
                loop = make_loop(store, trainer, releaser)
                await loop.work(max_steps=1)
                weights = (folder / "v1" / "weights" / "adapter_model.safetensors").stat().st_size
                if name == "full":
                    for room in (weights // 2, weights + 1):
                        await _pause(loop, store, trainer, folder, room=room)
                await loop.work()
                versions = await store.lessons.versions()
                made.append([version.sha256 for version in versions])
                assert [version.state for version in versions] == ["retired", "live"]
                assert {one.name for one in folder.iterdir()} == {"v1", "v2", ".orders"}
        finally:
            await trainer.close()
    assert made[0] == made[1]


async def _pause(loop: TrainLoop, store: SqliteStore, trainer: LocalTrainer, folder: Path, *, room: int) -> None:
    assert trainer.pid is not None
    pid = trainer.pid
    await store.lessons.set_flag(TRAINING_PAUSED, None)
    reader = StoreReader.open(folder.parent)
    with full_disk(pid, room=room):
        running = asyncio.create_task(loop.run())
        await comes_true(lambda: reader.flag(TRAINING_PAUSED) is not None)
        why = reader.flag(TRAINING_PAUSED)
        running.cancel()
        await asyncio.wait((running,))
    assert why is not None
    assert "free some space" in why
    assert "training.save_path" in why
    (step,) = await store.lessons.planned_steps()
    assert (step.number, len(step.sample_ids)) == (2, 3), "it waits, with its samples"


def test_chat_goes_on_while_training_waits_for_room(tmp_path: Path) -> None:
    settings = (
        "engine.type=embedded",
        f"model.name={build_tiny_model(tmp_path / 'model')}",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.truncated=score",  # a random model never comes to an end
        *OPEN_GATE,
    )
    with Server(tmp_path / "data", *settings) as server:
        reader = StoreReader.open(tmp_path / "data")
        _correct(server, "rain")
        server.wait_until(lambda: reader.versions(), timeout_s=120.0)
        before = len(reader.versions())
        with full_disk(_trainer(server).pid, room=1000):
            _correct(server, "snow")
            server.wait_until(lambda: reader.flag(TRAINING_PAUSED) is not None, timeout_s=60.0)
            assert "training.save_path" in str(reader.flag(TRAINING_PAUSED))
            assert server.chat("what is ice", max_tokens=12).status_code == 200
            assert len(reader.versions()) == before
        server.wait_until(lambda: len(reader.versions()) > before, timeout_s=120.0)
        server.wait_until(lambda: reader.flag(TRAINING_PAUSED) is None, timeout_s=60.0)
        assert all(step.state in ("done", "planned") for step in reader.steps("local"))


def _correct(server: Server, topic: str) -> None:
    turn = server.chat(f"what is {topic}", max_tokens=12).headers["X-OpenClaw-RL-Turn"]
    told = {"turn_id": turn, "text": "no, shorter please"}
    assert httpx.post(f"{server.url}/v1/feedback", json=told, headers=server.headers).status_code == 200


def _trainer(server: Server) -> psutil.Process:
    (found,) = [one for one in gateway(server).children() if "openclaw_rl.train.worker" in one.cmdline()]
    return found

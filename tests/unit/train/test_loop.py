"""Steps over the real store: planned before they are taken, taken again after a crash, never with the same sample."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.loop import LoopSettings, TrainLoop
from openclaw_rl.train.wire import StepOrder, StepReport
from openclaw_rl.types import Credit, Judgement, Message, NextState, Sample, Verdict, Version
from tests.unit.store.samples import SESSION, make_conversation, make_session
from tests.unit.store.test_lessons import made_of

TURNS = make_conversation(5)


class FakeTrainer:
    """Remembers its orders and does what it is told."""

    def __init__(self) -> None:
        self.orders: list[StepOrder] = []
        self.failures: list[Exception] = []
        self.reason = ""

    async def step(self, order: StepOrder) -> StepReport:
        self.orders.append(order)
        if self.failures:
            raise self.failures.pop()
        state: Any = "discarded" if self.reason else "done"
        return StepReport(state=state, metrics={"loss/total": 0.5}, reason=self.reason, sha256=f"sum{order.number}")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        await opened.put_session(make_session())
        for turn in TURNS:
            await opened.put_turn(turn)
        yield opened


async def learnable(store: SqliteStore, *indexes: int) -> list[Sample]:
    """Judged and credited turns: samples that wait for a step."""
    lessons, samples = store.lessons, []
    for index in indexes:
        said = (Message(role="user", content="no"),)
        await store.put_next_state(NextState(session=SESSION, index=index, messages=said, arrived_at=1.0))
        (held,) = await lessons.lease("judge", limit=1, ttl_s=60.0)
        verdict = Verdict(outcome="scored", score=-1)
        facts = {"session": SESSION, "index": index, "num_evidence": 1}
        await lessons.put_judgement(
            held,
            Judgement(**facts, judge="rules", prompt_version="1", judged_at=1.0, verdict=verdict),  # type: ignore[arg-type]
        )
        (held,) = await lessons.lease("credit", limit=1, ttl_s=60.0)
        samples.append(made_of(TURNS[index]))
        credit = Credit(**facts, rule="binary", credited_at=1.0, reward=-1.0, samples=(samples[-1],))  # type: ignore[arg-type]
        assert await lessons.put_credit(held, credit)
    return samples


class Rig:
    def __init__(self, store: SqliteStore, folder: Path, **settings: Any) -> None:
        self.store, self.trainer, self.released = store, FakeTrainer(), list[Version]()
        self.now = 1000.0
        self.was_released = asyncio.Event()
        values = {"batch_size": 2, "max_wait_s": 10.0, "max_steps": None, "seed": 7, "training": {"method": "binary"}}
        self.loop = TrainLoop(
            store.lessons,
            self.trainer,
            LoopSettings(**{"folder": folder, **values, **settings}),
            release=self.release,
            choose=lambda samples: samples,
            clock=lambda: self.now,
        )

    async def release(self, version: Version) -> None:
        self.released.append(version)
        self.was_released.set()
        await self.store.lessons.set_version_state(version.line, version.number, "live")


async def test_a_full_batch_is_a_step_and_the_rest_waits(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path / "versions", max_wait_s=1e9)
    samples = await learnable(store, 0, 1, 2)
    assert await rig.loop.work() == pytest.approx(samples[2].created_at + 1e9 - 1000.0)
    (order,) = rig.trainer.orders
    assert (order.line, order.number, order.parent, order.parent_number, order.seed) == ("ann", 1, None, 0, 7)
    assert order.samples == tuple(samples[:2])
    assert order.target == str(tmp_path / "versions" / "v1.ann")
    (version,) = rig.released
    assert (version.label, version.sha256, version.path) == ("v1.ann", "sum1", f"{order.target}/weights")
    await learnable(store, 3)
    await rig.loop.work()
    second = rig.trainer.orders[1]
    assert (second.number, second.parent, second.parent_number) == (2, order.target, 1)
    assert second.samples[0] == samples[2]
    assert await store.lessons.waiting_samples(None, 9) == []


async def test_a_single_sample_does_not_wait_for_ever(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path)
    (sample,) = await learnable(store, 0)
    rig.now = sample.created_at + 4.0
    assert await rig.loop.work() == pytest.approx(6.0)
    assert rig.trainer.orders == []
    rig.now = sample.created_at + 10.0
    assert await rig.loop.work() is None
    assert rig.trainer.orders[0].samples == (sample,)


async def test_a_step_whose_trainer_died_is_given_again_as_it_was(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path)
    await learnable(store, 0, 1)
    rig.trainer.failures = [TrainerLost("killed")]
    with pytest.raises(TrainerLost):
        await rig.loop.work()
    await learnable(store, 2)  # comes too late for this step
    again = Rig(store, tmp_path, max_wait_s=1e9)
    await again.loop.work()
    assert again.trainer.orders == rig.trainer.orders
    assert [version.number for version in again.released] == [1]


async def test_what_cannot_be_trained_is_discarded_with_the_reason_and_not_tried_again(
    store: SqliteStore, tmp_path: Path
) -> None:
    rig = Rig(store, tmp_path)
    await learnable(store, 0, 1)
    rig.trainer.failures = [TrainError("a sample does not fit into memory")]
    await rig.loop.work()
    await rig.loop.work()
    assert (len(rig.trainer.orders), rig.released) == (1, [])
    assert await store.lessons.planned_steps() == []
    rig.trainer.reason = "the loss is nan"
    await learnable(store, 2, 3)
    await rig.loop.work()
    assert rig.trainer.orders[1].parent_number == 0, "nothing was learned, so the base model is still the parent"
    assert rig.released == []


async def test_max_steps_ends_training(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, max_steps=1, batch_size=1)
    await learnable(store, 0, 1)
    await rig.loop.work()
    assert len(rig.trainer.orders) == 1
    assert len(await store.lessons.waiting_samples(None, 9)) == 1


async def test_a_credit_wakes_the_loop(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1)
    running = asyncio.create_task(rig.loop.run())
    await asyncio.sleep(0.05)
    await learnable(store, 0)
    async with asyncio.timeout(10):
        await rig.was_released.wait()
    running.cancel()


async def test_whatever_goes_wrong_in_training_is_only_a_delay(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.train.loop.RETRY_S", 0.01)
    rig = Rig(store, tmp_path, batch_size=1)
    rig.trainer.failures = [RuntimeError("a bug of ours")]
    running = asyncio.create_task(rig.loop.run())
    await learnable(store, 0)
    async with asyncio.timeout(10):
        await rig.was_released.wait()
    assert len(rig.trainer.orders) == 2
    running.cancel()

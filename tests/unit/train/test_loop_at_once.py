"""The train loop as a command drives it: so many steps, one after the other, each from what the last one made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.config import TrainingConfig
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.loop import LoopSettings, TrainLoop
from openclaw_rl.types import Credit, Judgement, Message, NextState, StepOrder, StepReport, Verdict, Version, WeightsRef
from openclaw_rl.wiring.learning import make_planner
from tests.factories.lessons import make_sample
from tests.factories.turns import SESSION, make_conversation, make_session
from tests.fakes.trainers import StubTrainer

TURNS = make_conversation(3, words=3)


class SlowTrainer(StubTrainer):
    """Says how many orders it had at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.orders: list[StepOrder] = []
        self.num_at_once, self.most_at_once = 0, 0

    async def step(self, order: StepOrder) -> StepReport:
        self.orders.append(order)
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        await asyncio.sleep(0.05)
        self.num_at_once -= 1
        made = self.new_checkpoint(order.line, order.number) / "weights"
        return StepReport(state="done", metrics={}, weights=WeightsRef.of_folder(made, "ab"))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        await opened.put_session(make_session())
        for turn in TURNS:
            await opened.put_turn(turn)
            said = (Message(role="user", content="no"),)
            await opened.put_next_state(NextState(session=SESSION, index=turn.index, messages=said, arrived_at=1.0))
        for held in await opened.lessons.lease("judge", limit=9, ttl_s=60.0):
            judgement = Judgement(
                session=SESSION,
                index=held.index,
                num_evidence=1,
                judge="rules",
                prompt_version="1",
                judged_at=1.0,
                verdict=Verdict(outcome="scored", score=-1),
            )
            await opened.lessons.put_judgement(held, judgement)
        for held in await opened.lessons.lease("credit", limit=9, ttl_s=60.0):
            sample = make_sample(TURNS[held.index], created_at=float(held.index))
            credit = Credit(
                session=SESSION, index=held.index, num_evidence=1, rule="x", credited_at=1.0, samples=(sample,)
            )
            await opened.lessons.put_credit(held, credit)
        yield opened


async def unreleased(_: Version) -> None:
    """Nobody gates it: it stays a candidate."""


def make_loop(store: SqliteStore, trainer: SlowTrainer) -> TrainLoop:
    training = TrainingConfig(batch_size=1, replay_max_age=0, anchors=0)
    settings = LoopSettings(batch_size=1, max_wait_s=None, pause_s=0.0, training={})
    return TrainLoop(store.lessons, trainer, make_planner(training, store.lessons), settings, release=unreleased)


async def test_without_a_release_each_step_starts_from_the_candidate_before_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    trainer, moved = SlowTrainer(here), SlowTrainer(there)
    loop = make_loop(store, trainer)
    assert await loop.work(at_once=True, max_steps=1) is None
    assert [order.parent_number for order in trainer.orders] == [0]
    await make_loop(store, moved).work(at_once=True, max_steps=5)
    assert [order.parent_number for order in moved.orders] == [1, 2]
    lies = [here / "v1.ann" / "weights", there / "v2.ann" / "weights"]
    assert [order.parent for order in moved.orders] == [WeightsRef.of_folder(folder, "ab") for folder in lies]
    assert [version.state for version in await store.lessons.versions()] == ["candidate"] * 3


async def test_no_steps_means_none(store: SqliteStore, tmp_path: Path) -> None:
    trainer = SlowTrainer(tmp_path)
    assert await make_loop(store, trainer).work(at_once=True, max_steps=0) is None
    assert trainer.orders == []


async def test_who_asks_while_it_works_waits(store: SqliteStore, tmp_path: Path) -> None:
    trainer = SlowTrainer(tmp_path)
    loop = make_loop(store, trainer)
    await asyncio.gather(loop.work(at_once=True), loop.work(at_once=True), loop.work())
    assert (len(trainer.orders), trainer.most_at_once) == (3, 1)
    assert [order.number for order in trainer.orders] == [1, 2, 3]

"""Steps over the real store: planned before they are taken, taken again after a crash, never with the same sample."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.config import TrainingConfig
from openclaw_rl.errors import EngineLost, TrainerLost, TrainError
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.train.loop import MAX_CHAIN, MAX_LOST, LoopSettings, TrainLoop, policy_age
from openclaw_rl.train.planning import Planner
from openclaw_rl.types import (
    TRAINING_PAUSED,
    Exercise,
    KeyTerms,
    Lesson,
    Message,
    NextState,
    Sample,
    Session,
    Step,
    StepOrder,
    StepReport,
    Version,
    VersionSpan,
    WeightsRef,
)
from openclaw_rl.types.training import DOUBT_S
from tests.factories.orders import exercise, sample
from tests.factories.stored import put_samples, turn_of
from tests.fakes.trainers import StubTrainer

ANCHORS = ((1, 5), (1, 6), (1, 7))
SESSION = Session(id="of-ann", user="ann", client="test", opened_at=1.0, last_seen_at=1.0)


class FakeTrainer(StubTrainer):
    """Remembers its orders and does what it is told: fail, discard what has a poisoned sample, or make a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.orders: list[StepOrder] = []
        self.failures: list[Exception] = []
        self.poison: set[str] = set()
        self.before: Callable[[StepOrder], Any] | None = None

    async def step(self, order: StepOrder) -> StepReport:
        self.orders.append(order)
        made = self.new_checkpoint(order.line, order.number)
        if self.before is not None:
            await self.before(order)
        made.mkdir()
        if self.failures:
            raise self.failures.pop(0)
        if self.poison & {one.id for one in order.samples}:
            return StepReport(state="discarded", metrics={}, reason="the loss is nan")
        return StepReport(
            state="done",
            metrics={"loss/total": 0.5},
            weights=WeightsRef.of_folder(made / "weights", f"sum{order.number}"),
        )

    @property
    def learned(self) -> list[list[int]]:
        """The indexes of the samples of each order."""
        return [[one.index for one in order.samples] for order in self.orders]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


async def learnable(store: SqliteStore, *indexes: int, line: str = "ann") -> list[Sample]:
    """Judged and credited turns: samples that wait for a step."""
    made = [
        sample(index, id=f"{line}/{index}", line=line, session=f"of-{line}", created_at=100.0 + index)
        for index in indexes
    ]
    await put_samples(store, made)
    return made


class Rig:
    def __init__(self, store: SqliteStore, folder: Path, **settings: Any) -> None:
        self.store, self.trainer, self.released = store, FakeTrainer(folder), list[Version]()
        self.ended: list[Step] = []
        self.waiting: list[str] = []
        self.now = 1000.0
        self.was_released = asyncio.Event()
        self.unreleasable: list[Exception] = []
        plan: dict[str, Any] = {
            "batch_size": 2,
            "max_steps": None,
            "max_staleness": None,
            "replay_max_age": 0,
            "seed": 7,
        }
        chosen = {name: settings.get(name, value) for name, value in plan.items()}
        values = {
            "batch_size": 2,
            "max_wait_s": 10.0,
            "pause_s": math.inf,
            "max_line_share": 1.0,
            "training": {"method": "binary"},
            "anchors": ANCHORS,
        }
        self.loop = TrainLoop(
            store.lessons,
            self.trainer,
            Planner(
                store.lessons,
                TrainingConfig(anchors=settings.get("num_anchors", 0), **chosen),
                choose=lambda samples: samples,
            ),
            LoopSettings(**{name: settings.get(name, value) for name, value in values.items()}),
            of_tasks=settings.get("of_tasks"),
            release=self.release,
            on_step=self.ended.append,
            on_waiting=self.waiting.append,
            terms_of=lambda line: settings.get("terms", {}).get(line, KeyTerms()),
            clock=lambda: self.now,
        )

    async def release(self, version: Version) -> None:
        if self.unreleasable:
            raise self.unreleasable.pop(0)
        self.released.append(version)
        self.was_released.set()
        await self.store.lessons.set_version_state(version.line, version.number, "live")


async def comes_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - rows have no event to wait for
            await asyncio.sleep(0.01)


async def test_a_full_batch_is_a_step_and_the_rest_waits(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path / "versions", max_wait_s=1e9)
    samples = await learnable(store, 0, 1, 2)
    assert await rig.loop.work() == pytest.approx(samples[2].created_at + 1e9 - 1000.0)
    (order,) = rig.trainer.orders
    assert (order.line, order.number, order.parent, order.parent_number, order.seed) == ("ann", 1, None, 0, 7)
    assert order.samples == tuple(samples[:2])
    (version,) = rig.released
    assert version.label == "v1.ann"
    assert version.weights == WeightsRef.of_folder(tmp_path / "versions" / "v1.ann" / "weights", "sum1")
    await learnable(store, 3)
    await rig.loop.work()
    second = rig.trainer.orders[1]
    assert (second.number, second.parent, second.parent_number) == (
        2,
        version.weights,
        1,
    )
    assert second.samples[0] == samples[2]
    assert await store.lessons.waiting_samples(None, 9) == []


async def test_of_steps_that_follow_each_other_only_the_last_is_released(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, max_wait_s=1e9)
    await learnable(store, *range(11))
    await rig.loop.work()
    assert rig.trainer.learned == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert [(order.number, order.parent_number) for order in rig.trainer.orders] == [(n, n - 1) for n in range(1, 6)]
    assert [version.number for version in rig.released] == [MAX_CHAIN, 5]


async def test_what_was_made_is_released_before_a_step_that_fails_is_tried_again(
    store: SqliteStore, tmp_path: Path
) -> None:
    rig = Rig(store, tmp_path)

    async def third_fails(order: StepOrder) -> None:
        if order.number == 3:
            raise TrainError("no")

    rig.trainer.before = third_fails
    await learnable(store, *range(6))
    with pytest.raises(TrainError, match="no"):
        await rig.loop.work()
    assert [version.number for version in rig.released] == [2]
    rig.trainer.before = None
    await rig.loop.work()
    assert [version.number for version in rig.released] == [2, 3]


async def test_no_more_steps_follow_than_are_wanted_and_none_follows_a_doubted_one(
    store: SqliteStore, tmp_path: Path
) -> None:
    rig = Rig(store, tmp_path)
    samples = await learnable(store, *range(8))
    await rig.loop.work(max_steps=3)
    assert [version.number for version in rig.released] == [3]
    rig.trainer.poison = {samples[6].id}
    await rig.loop.work()
    assert [len(order.samples) for order in rig.trainer.orders[3:]] == [2, 1, 1]
    assert [version.number for version in rig.released] == [3, 6]


async def test_no_doubted_sample_joins_a_chain(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path)

    async def one_falls_into_doubt(order: StepOrder) -> None:
        if order.number == 1:
            await store._transact(
                lambda rows: rows.exec_driver_sql("UPDATE sample SET num_discarded = 1 WHERE id = 'ann/5'")
            )

    rig.trainer.before = one_falls_into_doubt
    await learnable(store, *range(6))
    await rig.loop.work()
    assert rig.trainer.learned[:2] == [[0, 1], [5]]
    assert [version.number for version in rig.released][:2] == [1, 2]


async def test_a_single_sample_does_not_wait_for_ever(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path)
    (given,) = await learnable(store, 0)
    rig.now = given.created_at + 4.0
    assert await rig.loop.work() == pytest.approx(6.0)
    assert (rig.trainer.orders, rig.waiting) == ([], ["ann"])
    rig.now = given.created_at + 10.0
    assert await rig.loop.work() is None
    assert rig.trainer.orders[0].samples == (given,)


async def test_without_a_limit_on_waiting_only_more_samples_bring_a_step_about(
    store: SqliteStore, tmp_path: Path
) -> None:
    rig = Rig(store, tmp_path, max_wait_s=None, pause_s=0.0)
    await learnable(store, 0)
    rig.now = 1e12
    assert await rig.loop.work() is None
    assert rig.trainer.orders == []
    assert await rig.loop.work(at_once=True) is None
    assert rig.trainer.learned == [[0]]


async def says(store: SqliteStore, index: int, at: float, *, line: str = "ann") -> None:
    """What a person says about a turn, which the judge has not heard yet."""
    said = (Message(role="user", content="and"),)
    await store.put_next_state(NextState(session=f"of-{line}", index=index, messages=said, arrived_at=at))


async def test_a_pause_of_the_person_fires_the_step(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, pause_s=2.0)
    (given,) = await learnable(store, 0)
    rig.now = given.created_at + 1.5
    assert await rig.loop.work() == pytest.approx(0.5)
    await store.put_session(replace(SESSION, last_seen_at=given.created_at + 1.0))
    assert await rig.loop.work() == pytest.approx(1.5), "they went on"
    rig.now = given.created_at + 3.0
    assert await rig.loop.work() is None
    assert rig.trainer.learned == [[0]]


async def test_who_never_pauses_waits_no_longer_than_the_limit(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, pause_s=2.0)
    (given,) = await learnable(store, 0)
    rig.now = given.created_at + 9.0
    await store.put_session(replace(SESSION, last_seen_at=given.created_at + 8.9))
    assert await rig.loop.work() == pytest.approx(1.0)


async def test_a_pause_waits_for_what_was_said_to_be_judged(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, pause_s=2.0, max_wait_s=1e9)
    await learnable(store, 0)
    await store.put_turn(turn_of(sample(1, session="of-ann")))
    await says(store, 1, 1.0)
    running = asyncio.create_task(rig.loop.run())
    await comes_true(lambda: rig.waiting == ["ann"])
    (held,) = await store.lessons.lease("judge", limit=1, ttl_s=60.0)
    assert rig.released == []
    await store.lessons.close_task(held)
    async with asyncio.timeout(60):
        await rig.was_released.wait()
    assert rig.trainer.learned == [[0]]
    running.cancel()


async def test_each_person_has_pauses_of_their_own(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, pause_s=2.0, max_wait_s=1e9)
    await learnable(store, 0)
    await learnable(store, 1, line="bob")
    await store.put_turn(turn_of(sample(2, session="of-ann")))
    await says(store, 2, 1.0)
    await rig.loop.work()
    assert [version.label for version in rig.released] == ["v1.bob"]


async def test_attempts_have_settings_of_their_own_and_whole_batches_as_long_as_more_come(
    store: SqliteStore, tmp_path: Path
) -> None:
    of_tasks = LoopSettings(
        batch_size=4, max_wait_s=60.0, pause_s=math.inf, training={"method": "binary"}, waits_from_newest=True
    )
    rig = Rig(store, tmp_path, of_tasks=of_tasks)
    await learnable(store, 1, 2, 50, line="env:toy")
    await learnable(store, 1, 2)
    rig.now = 100.0 + 50 + 59
    assert await rig.loop.work() == 1.0, "two more may come; the first has waited for longer than a minute"
    assert [order.line for order in rig.trainer.orders] == ["ann"]
    rig.now += 1.0
    assert await rig.loop.work() is None
    (order,) = rig.trainer.orders[1:]
    assert (order.line, order.settings, len(order.samples)) == ("env:toy", of_tasks.training, 3)


async def test_no_more_steps_than_asked_for(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1)
    await learnable(store, 0, 1, 2)
    assert await rig.loop.work(max_steps=2) is None
    assert rig.trainer.learned == [[0], [1]]


async def test_a_step_whose_trainer_died_is_given_again_as_it_was(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path / "versions", num_anchors=2)
    await learnable(store, 0, 1)
    rig.trainer.failures = [TrainerLost("killed")]
    with pytest.raises(TrainerLost):
        await rig.loop.work()
    await learnable(store, 2)  # comes too late for this step
    again = Rig(store, tmp_path / "elsewhere", max_wait_s=1e9)
    await again.loop.work()
    (old,), (new,) = rig.trainer.orders, again.trainer.orders
    assert (new.samples, new.anchors, new.seed) == (old.samples, ((1, 7), (1, 5)), old.seed)
    assert [version.number for version in again.released] == [1]


async def test_a_step_that_kills_trainer_after_trainer_is_discarded(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path / "versions", batch_size=1)
    rig.trainer.before = lambda order: asyncio.to_thread((tmp_path / "versions" / ".v1.ann.partial").mkdir)
    rig.trainer.failures = [TrainerLost(f"death {number}") for number in range(MAX_LOST)]
    await learnable(store, 0)
    for _ in range(MAX_LOST - 1):
        with pytest.raises(TrainerLost):
            await rig.loop.work()
        for left in (tmp_path / "versions").iterdir():
            left.rmdir()
        assert [step.state for step in await store.lessons.planned_steps()] == ["planned"]
    await rig.loop.work()
    (step,) = rig.ended
    assert (step.state, step.reason) == ("discarded", f"{MAX_LOST} trainers died over it: death {MAX_LOST - 1}")
    assert await store.lessons.waiting_samples(None, 9) == [], "it was alone: nobody else can be the reason"
    assert list((tmp_path / "versions").iterdir()) == [], "neither a checkpoint nor a part of one is left"


async def test_what_cannot_be_done_now_is_only_a_delay(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path / "versions")
    await learnable(store, 0, 1)
    rig.trainer.failures = [TrainError("the disk is full")]
    with pytest.raises(TrainError, match="full"):
        await rig.loop.work()
    (step,) = await store.lessons.planned_steps()
    assert (step.state, step.reason, rig.released) == ("planned", "", [])
    (tmp_path / "versions" / "v1.ann").rmdir()
    await rig.loop.work()
    assert rig.trainer.orders[0] == rig.trainer.orders[1]
    assert [version.number for version in rig.released] == [1]


async def test_one_line_that_is_stuck_keeps_no_other_from_learning(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1)
    await learnable(store, 0)
    await learnable(store, 1, 2, line="bob")
    rig.trainer.failures = [TrainError("the checkpoint cannot be read")]
    with pytest.raises(TrainError, match="cannot be read"):
        await rig.loop.work()
    assert [order.line for order in rig.trainer.orders] == ["ann", "bob", "bob"]
    assert [version.label for version in rig.released] == ["v1.bob", "v2.bob"]


def only_bob(rig: Rig, error: Exception) -> None:
    """The trainer has this to say about everything that is not bob's."""

    async def fail(order: StepOrder) -> None:
        if order.line != "bob":
            raise error

    rig.trainer.before = fail


@pytest.mark.parametrize("error", [TrainError("the checkpoint cannot be read"), RuntimeError("a bug of ours")])
async def test_a_line_that_is_stuck_rests_alone(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("openclaw_rl.train.loop.RETRY", Backoff(first_s=3600.0))
    rig, reader = Rig(store, tmp_path, batch_size=1), StoreReader.open(tmp_path)
    only_bob(rig, error)
    await learnable(store, 0)
    running = asyncio.create_task(rig.loop.run())
    await comes_true(lambda: reader.flag(TRAINING_PAUSED) == str(error))
    for index in (1, 2):
        await learnable(store, index, line="bob")
        await comes_true(lambda index=index: len(rig.released) == index)  # type: ignore[misc]
    assert [order.line for order in rig.trainer.orders] == ["ann", "bob", "bob"], "its own samples wake the other one"
    assert reader.flag(TRAINING_PAUSED) == str(error), "it is stuck still"
    rig.trainer.before = None
    await rig.loop.work(at_once=True)
    assert [version.label for version in rig.released][2:] == ["v1.ann"], "who asks for it need not wait"
    await comes_true(lambda: reader.flag(TRAINING_PAUSED) is None)
    running.cancel()


async def test_a_line_rests_longer_each_time_and_whatever_the_others_do(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("openclaw_rl.train.loop.RETRY", Backoff(first_s=0.01, longest_s=0.04))
    rig = Rig(store, tmp_path, batch_size=1)
    only_bob(rig, TrainError("no room"))
    await learnable(store, 0)
    await learnable(store, *range(1, 4), line="bob")

    def pauses() -> list[str]:
        return [record.getMessage().split(" s:")[0] for record in caplog.records if "waits" in record.getMessage()]

    running = asyncio.create_task(rig.loop.run())
    await comes_true(lambda: len(pauses()) >= 4)
    assert pauses()[:4] == ["ann waits 0.01", "ann waits 0.02", "ann waits 0.04", "ann waits 0.04"]
    rig.trainer.before = None
    await comes_true(lambda: len(rig.released) == 4)
    caplog.clear()
    only_bob(rig, TrainError("no room again"))
    await learnable(store, 9)
    await comes_true(lambda: len(pauses()) >= 1)
    assert pauses()[0] == "ann waits 0.01", "it had recovered"
    running.cancel()


async def test_a_line_with_nothing_left_to_take_does_not_keep_the_loop_awake(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.train.loop.RETRY", Backoff(first_s=0.01))
    rig, reader = Rig(store, tmp_path, max_wait_s=1e9), StoreReader.open(tmp_path)
    rig.unreleasable = [EngineLost("gone")]
    await learnable(store, 0, 1)
    await learnable(store, 2, line="bob")
    naps = list[float | None]()
    timeout = asyncio.timeout

    def noted(delay: float | None) -> asyncio.Timeout:
        if asyncio.current_task() is running:
            naps.append(delay)
        return timeout(delay)

    monkeypatch.setattr(asyncio, "timeout", noted)
    running = asyncio.create_task(rig.loop.run())
    await comes_true(lambda: len(rig.waiting) >= 2)  # bob's sample is told at each look
    await comes_true(lambda: reader.flag(TRAINING_PAUSED) is None)
    await comes_true(lambda: (naps[-1] or 0.0) > 1e8)  # it sleeps until bob's sample is due
    running.cancel()


async def test_a_version_that_no_engine_takes_is_built_upon_all_the_same(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1)
    rig.unreleasable = [EngineLost("gone")]
    await learnable(store, 0, 1)
    with pytest.raises(EngineLost):
        await rig.loop.work()
    await rig.loop.work()
    first, second = rig.trainer.orders
    assert (second.parent, second.parent_number) == (
        WeightsRef.of_folder(tmp_path / f"v{first.number}.ann" / "weights", "sum1"),
        1,
    )


STEP_S = DOUBT_S / 6


def keeps_talking(rig: Rig, line: str) -> None:
    """Every step takes a while, and when it ends a whole batch of this line waits again."""
    numbers = itertools.count(100)

    async def talk(order: StepOrder) -> None:
        rig.now += STEP_S
        if order.line == line:
            await learnable(rig.store, next(numbers), next(numbers), line=line)

    rig.trainer.before = talk


def turns(rig: Rig) -> list[str]:
    """Whose step it was, one after the other; those that follow each other are one."""
    return [line for line, _ in itertools.groupby(order.line for order in rig.trainer.orders)]


async def test_what_one_line_has_in_doubt_keeps_no_other_from_learning(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=4, max_wait_s=1e9)
    await learnable(store, *range(4))
    rig.trainer.poison = {"ann/1"}

    async def bob_says_something(order: StepOrder) -> None:
        rig.now += STEP_S
        if order.number == 2 and order.line == "ann":
            await learnable(store, *range(10, 14), line="bob")

    rig.trainer.before = bob_says_something
    await rig.loop.work()
    assert turns(rig) == ["ann", "bob", "ann"]
    assert rig.trainer.learned == [[0, 1, 2, 3], [0], [10, 11, 12, 13], [1], [2], [3]]


async def test_doubted_samples_give_way_but_not_for_ever(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, max_wait_s=1e9)
    await learnable(store, 0, 1)
    rig.trainer.poison = {"ann/1"}
    keeps_talking(rig, "bob")
    await rig.loop.work(max_steps=1)
    await learnable(store, 50, 51, line="bob")
    await rig.loop.work(max_steps=24)
    first, second, third = (number for number, order in enumerate(rig.trainer.orders) if order.line == "ann")
    assert (first, rig.trainer.learned[second], rig.trainer.learned[third]) == (0, [0], [1])
    # Bob's are new each time, so they go first, up to `MAX_CHAIN` steps together.
    for passed in (second - first, third - second):
        assert DOUBT_S / STEP_S <= passed <= DOUBT_S / STEP_S + MAX_CHAIN + 1


@pytest.mark.parametrize("since", [10, 500], ids=["older", "newer"])
async def test_nobody_who_keeps_talking_holds_up_the_others(store: SqliteStore, tmp_path: Path, since: int) -> None:
    rig = Rig(store, tmp_path, max_wait_s=1e9)
    await learnable(store, 0, 1, line="bob")
    keeps_talking(rig, "bob")
    await rig.loop.work(max_steps=1)
    await learnable(store, *range(since, since + 18), line="ann")
    await learnable(store, *range(since, since + 2), line="carol")
    await rig.loop.work(max_steps=20)
    assert turns(rig)[:8] == ["bob", "ann", "carol", "bob", "ann", "bob", "ann", "bob"]


async def test_what_is_harmful_in_company_is_tried_alone(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=3, max_wait_s=1e9, num_anchors=1)
    await learnable(store, 0, 1, 2)
    rig.trainer.poison = {"ann/1"}
    assert await rig.loop.work() is None
    assert rig.trainer.learned == [[0, 1, 2], [0], [1], [2]]
    assert [len(order.anchors) for order in rig.trainer.orders] == [1, 0, 0, 0], "alone means alone"
    assert [(step.number, step.state) for step in rig.ended] == [
        (1, "discarded"),
        (2, "done"),
        (3, "discarded"),
        (4, "done"),
    ]
    assert rig.ended[2].reason == "the loss is nan"
    assert [(order.parent_number) for order in rig.trainer.orders] == [0, 0, 2, 2]
    assert await rig.loop.work(at_once=True) is None
    assert len(rig.trainer.orders) == 4, "what is harmful alone is not tried again"
    assert not (tmp_path / "v1.ann").exists()


async def test_a_sample_that_left_takes_nobody_with_it(store: SqliteStore, tmp_path: Path) -> None:
    """Deleted between plan and step: the others come back, without a doubt about them."""
    rig = Rig(store, tmp_path, batch_size=2)
    await learnable(store, 0)
    await put_samples(store, [sample(1, id="gone/1", line="ann", session="gone", created_at=50.0)])
    rig.trainer.failures = [TrainerLost("killed")]
    with pytest.raises(TrainerLost):
        await rig.loop.work()
    await store.lessons.delete_session("gone")
    (tmp_path / "v1.ann").rmdir()
    await learnable(store, 2)
    await rig.loop.work()
    assert rig.trainer.learned == [[1, 0], [0, 2]]
    assert [(step.state, step.reason[:12]) for step in rig.ended] == [("discarded", "some of its "), ("done", "")]


async def test_who_opts_out_while_a_step_is_computed_is_not_learned_from(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=2)
    await learnable(store, 0)
    await put_samples(store, [sample(1, id="shy/1", line="ann", session="shy", created_at=50.0)])

    async def opt_out(order: StepOrder) -> None:
        rig.trainer.before = None
        session = await store.lessons.get_session("shy")
        assert session is not None
        await store.put_session(replace(session, opted_out=True))

    rig.trainer.before = opt_out
    await rig.loop.work()
    assert rig.trainer.learned == [[1, 0], [0]]
    assert [version.number for version in rig.released] == [2], "what learned from it does not go live"
    assert not (tmp_path / "v1.ann").exists()
    assert await store.lessons.waiting_samples(None, 9) == []
    (credit,) = await store.lessons.credits("shy")
    assert credit.skip == "opted_out"


async def test_a_step_that_is_undone_while_it_is_computed_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=2)
    await learnable(store, 0, 1)

    async def undo(order: StepOrder) -> None:
        rig.trainer.before = None
        await store.lessons.undo(Lesson(line="ann", turn=("of-ann", 1)), reason="it was wrong")

    rig.trainer.before = undo
    await rig.loop.work(at_once=True)
    assert rig.trainer.learned == [[0, 1], [0]], "the other one is learned from again, without it"
    assert [version.number for version in rig.released] == [2]
    assert ((tmp_path / "v1.ann").exists(), (tmp_path / "v2.ann").exists()) == (False, True)


async def test_going_back_while_a_step_is_computed_is_not_undone_by_it(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1)
    await learnable(store, 0)
    await rig.loop.work()

    async def roll_back(order: StepOrder) -> None:
        rig.trainer.before = None
        await store.lessons.set_version_state("ann", 1, "rolled_back")

    rig.trainer.before = roll_back
    await learnable(store, 1)
    await rig.loop.work()
    assert [(order.number, order.parent_number) for order in rig.trainer.orders] == [(1, 0), (2, 1), (3, 0)]
    assert rig.trainer.learned == [[0], [1], [1]], "the lesson is learned from where the person went back to"
    assert [step.state for step in rig.ended] == ["done", "discarded", "done"]
    assert [version.number for version in rig.released] == [1, 3]


async def test_max_steps_ends_training(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, max_steps=1, batch_size=1)
    await learnable(store, 0, 1)
    await rig.loop.work()
    assert len(rig.trainer.orders) == 1
    assert len(await store.lessons.waiting_samples(None, 9)) == 1


async def test_anchors_come_in_turn(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1, num_anchors=2)
    await learnable(store, 0, 1)
    await rig.loop.work()
    assert [order.anchors for order in rig.trainer.orders] == [((1, 7), (1, 5)), ((1, 6), (1, 7))]


async def test_a_credit_wakes_the_loop(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1)
    running = asyncio.create_task(rig.loop.run())
    await asyncio.sleep(0.05)
    await learnable(store, 0)
    async with asyncio.timeout(60):
        await rig.was_released.wait()
    running.cancel()


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug of ours"), TrainError("the disk is full"), TrainerLost("it died")]
)
async def test_whatever_goes_wrong_in_training_is_a_pause_that_says_why(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("openclaw_rl.train.loop.RETRY", Backoff(first_s=0.01))
    rig = Rig(store, tmp_path / "versions", batch_size=1)
    reader, flags = StoreReader.open(tmp_path), list[str | None]()

    async def look(order: StepOrder) -> None:
        flags.append(reader.flag(TRAINING_PAUSED))
        for left in (tmp_path / "versions").iterdir():
            left.rmdir()

    rig.trainer.before = look
    rig.trainer.failures = [error]
    running = asyncio.create_task(rig.loop.run())
    await learnable(store, 0)
    async with asyncio.timeout(60):
        await rig.was_released.wait()
    assert flags == [None, str(error)]
    await comes_true(lambda: reader.flag(TRAINING_PAUSED) is None)
    running.cancel()


async def test_a_pause_of_the_last_run_is_over_when_nothing_is_wrong(store: SqliteStore, tmp_path: Path) -> None:
    await store.lessons.set_flag(TRAINING_PAUSED, "the disk was full")
    reader = StoreReader.open(tmp_path)
    assert reader.flag(TRAINING_PAUSED) == "the disk was full"
    running = asyncio.create_task(Rig(store, tmp_path).loop.run())
    await comes_true(lambda: reader.flag(TRAINING_PAUSED) is None)
    running.cancel()


def test_the_age_of_a_batch_is_counted_in_tokens() -> None:
    spans = (VersionSpan("v1.ann", 0, 4), VersionSpan("v3.ann", 4, 5))
    assert policy_age(3, [sample(0, version_spans=spans)]) == pytest.approx((4 * 2 + 1 * 0) / 5)


async def test_exercises_are_those_of_the_steps_own_samples(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=1, replay_max_age=4)
    seen: list[tuple[int, list[str]]] = []

    class Practised:
        def exercises(self, step: Step, samples: Sequence[Sample]) -> tuple[Exercise, ...]:
            seen.append((step.number, [one.id for one in samples]))
            return (exercise(w_opd=float(step.number)),)

    rig.loop._practice = Practised()
    await learnable(store, 0, 1)
    await rig.loop.work()
    assert seen == [(1, ["ann/0"]), (2, ["ann/1"])]
    assert [order.exercises[0].w_opd for order in rig.trainer.orders] == [1.0, 2.0]


async def test_a_line_of_more_weight_has_more_turns(store: SqliteStore, tmp_path: Path) -> None:
    """Each turn takes ten seconds, and both lines always have more."""
    rig = Rig(store, tmp_path, batch_size=1, max_wait_s=0.0, terms={"ann": KeyTerms(weight=3.0)})

    async def takes_ten_seconds(_: StepOrder) -> None:
        rig.now += 10.0

    rig.trainer.before = takes_ten_seconds
    for line in ("ann", "bob"):
        await learnable(store, *range(12), line=line)
    await rig.loop.work(max_steps=12)
    lines = [order.line for order in rig.trainer.orders]
    assert lines.count("ann") > 1.5 * lines.count("bob") > 0


async def test_a_line_leaves_the_trainer_alone_beyond_its_share(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, batch_size=2, max_wait_s=0.0, terms={"ann": KeyTerms(training_share=0.25)})

    async def takes_ten_seconds(_: StepOrder) -> None:
        rig.now += 10.0

    rig.trainer.before = takes_ten_seconds
    await learnable(store, 0)
    assert await rig.loop.work() is None
    await learnable(store, 1, 2, 3)
    due_in = await rig.loop.work()
    assert (len(rig.trainer.orders), due_in) == (1, 30.0), "a quarter of forty seconds are ten"
    rig.now += 29.0
    assert await rig.loop.work() == 1.0
    rig.now += 1.0
    await rig.loop.work()
    assert rig.trainer.learned[1] == [1, 2]
    assert len(rig.trainer.orders) == 2
    await rig.loop.work(at_once=True)
    assert len(rig.trainer.orders) == 3, "a person who wants it now gets it"


async def test_the_share_of_the_settings_holds_for_those_who_have_none(store: SqliteStore, tmp_path: Path) -> None:
    rig = Rig(store, tmp_path, max_wait_s=0.0, max_line_share=0.5)

    async def takes_ten_seconds(_: StepOrder) -> None:
        rig.now += 10.0

    rig.trainer.before = takes_ten_seconds
    await learnable(store, 0)
    await rig.loop.work()
    await learnable(store, 1)
    await learnable(store, 5, line="bob")
    await rig.loop.work()
    assert [order.line for order in rig.trainer.orders] == ["ann", "bob", "ann"], "her rest is over when his step is"

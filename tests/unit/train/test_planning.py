"""What goes into the next step: what is new, too old, repeated, or comes alone. Over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import TrainingConfig
from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.planning import Planner, is_stale
from openclaw_rl.types import Lesson, Sample, Skip, Step, Version, VersionSpan, VersionState
from tests.factories.orders import sample
from tests.factories.stored import put_samples
from tests.factories.weights import folder_ref

LINE = "local"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


def planner(store: SqliteStore, **changes: Any) -> Planner:
    more = {name: changes.pop(name) for name in ("choose", "on_skip") if name in changes}
    values: dict[str, Any] = {
        "batch_size": 3,
        "max_steps": None,
        "max_staleness": None,
        "replay_max_age": 0,
        "anchors": 0,
        "seed": 7,
    }
    return Planner(store.lessons, TrainingConfig(**(values | changes)), **{"choose": lambda samples: samples, **more})


async def plan(store: SqliteStore, **changes: Any) -> Step:
    step = await planner(store, **changes).next_step(LINE, now=9.0)
    assert step is not None
    return step


def made(*indexes: int, **changes: Any) -> list[Sample]:
    return [sample(index, **{"session": f"s{index}", "id": f"x{index}", **changes}) for index in indexes]


async def take(store: SqliteStore, step: Step, state: VersionState = "live") -> None:
    """The step is done, and so is its release."""
    await store.lessons.plan_step(step)
    version = Version(
        line=step.line,
        number=step.number,
        parent=step.parent,
        state="candidate",
        created_at=0.0,
        weights=folder_ref(f"/v{step.number}/weights", ""),
    )
    await store.lessons.finish_step(replace(step, state="done"), version)
    gate = {"live_at": 0.0} if state == "live" else None
    await store.lessons.set_version_state(step.line, step.number, state, gate=gate)


async def test_what_waits_longest_comes_first_and_no_more_than_a_batch(store: SqliteStore) -> None:
    assert await planner(store).next_step(LINE, now=9.0) is None
    await put_samples(store, [one for index in (3, 0, 2, 1) for one in made(index, created_at=10.0 + index)])
    step = await plan(store, anchors=2)
    assert step == Step(
        line=LINE,
        number=1,
        state="planned",
        planned_at=9.0,
        seed=7,
        parent=0,
        sample_ids=("x0", "x1", "x2"),
        num_anchors=2,
    )
    await store.lessons.plan_step(step)
    following = await plan(store)
    assert (following.number, following.sample_ids) == (2, ("x3",))
    with pytest.raises(StoreError, match="cannot have"):
        await store.lessons.plan_step(replace(following, sample_ids=("x3", "x0")))


async def test_caps_choose_among_more_than_a_batch(store: SqliteStore) -> None:
    await put_samples(store, made(*range(14)))
    seen: list[int] = []

    def choose(samples: Sequence[Sample]) -> Sequence[Sample]:
        seen.append(len(samples))
        return samples[1::2]

    assert (await plan(store, choose=choose)).sample_ids == ("x1", "x11", "x13")
    assert seen == [12]
    assert await planner(store, choose=lambda _: ()).next_step(LINE, now=9.0) is None


async def test_steps_of_attempts_are_larger_and_keep_no_company(store: SqliteStore) -> None:
    line, changes = "env:toy", {"task_batch_size": 5, "replay_max_age": 4, "anchors": 2}
    await put_samples(store, made(*range(7), line=line))
    first = await planner(store, **changes).next_step(line, now=9.0)
    assert first is not None
    await take(store, first)
    second = await planner(store, **changes).next_step(line, now=9.0)
    assert second is not None
    assert [(len(one.sample_ids), one.num_anchors, one.replayed_ids) for one in (first, second)] == [
        (5, 0, ()),
        (2, 0, ()),
    ]


async def test_attempts_of_a_rejected_version_do_not_come_again(store: SqliteStore) -> None:
    line, told = "env:toy", list[tuple[str, Sequence[str], Skip]]()
    await put_samples(store, made(0, 1, line=line))
    first = await planner(store).next_step(line, now=9.0)
    assert first is not None
    await take(store, first, state="rejected")
    assert await store.lessons.doubted_samples(line) == ["x0", "x1"]
    await put_samples(store, made(2, line=line))
    second = await planner(store, on_skip=lambda *skipped: told.append(skipped)).next_step(line, now=9.0)
    assert second is not None
    assert second.sample_ids == ("x2",)
    assert told == [(line, ["x0", "x1"], Skip.DISCARDED)]
    assert await store.lessons.doubted_samples(line) == []


async def test_max_steps_counts_the_steps_of_a_line(store: SqliteStore) -> None:
    await put_samples(store, made(0, 1))
    await take(store, await plan(store, batch_size=1, max_steps=1))
    assert await planner(store, max_steps=1).next_step(LINE, now=9.0) is None
    assert (await plan(store, max_steps=2)).number == 2


async def test_answers_of_versions_long_ago_are_skipped_for_good(store: SqliteStore) -> None:
    await put_samples(store, made(0))
    await take(store, await plan(store))
    await put_samples(store, made(1))
    await take(store, await plan(store))
    old, rewrite = made(2)[0], made(3, kind="rewrite")[0]
    mixed = sample(4, session="s4", id="x4", version_spans=(VersionSpan("v1", 0, 2), VersionSpan("v2", 2, 5)))
    await put_samples(store, [old, rewrite, mixed])
    skipped: list[tuple[str, Sequence[str], Skip]] = []
    step = await plan(store, max_staleness=1, on_skip=lambda *told: skipped.append(told))
    assert step.sample_ids == ("x3", "x4"), "a rewrite is an example at any age; the mixed answer is one version old"
    assert skipped == [(LINE, ["x2"], Skip.STALE)]
    assert [credit.skip for credit in await store.lessons.credits("s2")] == [Skip.STALE]
    assert [credit.skip for credit in await store.lessons.credits("s4")] == [None]
    assert await store.lessons.samples_named(["x2"]) == []


@pytest.mark.parametrize(("at", "limit", "stale"), [(3, 2, False), (4, 2, True), (9, None, False), (0, 0, False)])
def test_the_oldest_token_counts(at: int, limit: int | None, stale: bool) -> None:
    spans = (VersionSpan("v1.ann", 0, 1), VersionSpan("v3.ann", 1, 5))
    assert is_stale(sample(0, version_spans=spans), at, limit) is stale
    assert not is_stale(sample(0, kind="rewrite", version_spans=spans), at, limit)


async def test_going_back_makes_no_answer_old(store: SqliteStore) -> None:
    for index in range(6):
        await put_samples(store, made(index))
        await take(store, await plan(store, batch_size=1))
    undone = await store.lessons.undo(Lesson(line=LINE, turn=("s1", 1)), reason="it was wrong")
    assert (undone.plan.back_to, undone.num_returned) == (1, 4)
    fresh = made(7, version_spans=(VersionSpan("v1", 0, 8),))
    await put_samples(store, fresh)
    for number, name in ((7, "x2"), (8, "x3"), (9, "x4"), (10, "x5")):
        step = await plan(store, batch_size=1, max_staleness=1)
        assert (step.number, step.sample_ids) == (number, (name,)), "sampled by v0, and in time when it was learned"
        await take(store, step)
    versions = await store.lessons.versions(LINE)
    assert not is_stale(fresh[0], 7, 1, versions), "v7 stands on v1"
    assert is_stale(fresh[0], 8, 1, versions)


async def history(store: SqliteStore) -> None:
    """Steps 1, 2, 3 learned from x1, x2, x3; then somebody went back to version 2 and step 4 learned from x4."""
    for number in (1, 2, 3):
        await put_samples(store, made(number))
        await take(store, await plan(store))
    await store.lessons.set_version_state(LINE, 2, "live")
    await store.lessons.set_version_state(LINE, 3, "rolled_back")
    await put_samples(store, made(4))
    step = await plan(store)
    assert step.parent == 2
    await take(store, step)
    await put_samples(store, made(5))


@pytest.mark.parametrize(("max_age", "known"), [(0, set()), (1, {"x4"}), (2, {"x4", "x2"}), (9, {"x4", "x2", "x1"})])
async def test_a_batch_that_is_not_full_is_filled_from_the_way_to_the_live_version(
    store: SqliteStore, max_age: int, known: set[str]
) -> None:
    await history(store)
    step = await plan(store, batch_size=9, replay_max_age=max_age)
    assert (step.sample_ids, set(step.replayed_ids)) == (("x5",), known), "never from what was rolled back"
    assert len(step.replayed_ids) == len(known)


async def test_what_is_repeated_is_drawn_by_the_steps_own_name(store: SqliteStore) -> None:
    await history(store)
    drawn = {(await plan(store, batch_size=2, replay_max_age=9, seed=seed)).replayed_ids for seed in range(20)}
    assert drawn == {("x1",), ("x2",), ("x4",)}
    again = [(await plan(store, batch_size=3, replay_max_age=9, seed=3)).replayed_ids for _ in range(3)]
    assert len(set(again)) == 1
    assert len(again[0]) == 2, "room for two beside the new one"
    assert (await plan(store, batch_size=1, replay_max_age=9)).replayed_ids == ()


async def test_hints_are_repeated_and_scores_where_there_are_none(store: SqliteStore) -> None:
    scores = made(0, 1, w_opd=0.0, candidates=())
    await put_samples(store, [*scores, *made(2, 3)])
    await take(store, await plan(store, batch_size=2))
    assert set((await plan(store, batch_size=9, replay_max_age=9)).replayed_ids) == {"x0", "x1"}
    await take(store, await plan(store, batch_size=1))
    step = await plan(store, batch_size=9, replay_max_age=9)
    assert (step.sample_ids, step.replayed_ids) == (("x3",), ("x2",))


async def test_who_opted_out_is_not_repeated(store: SqliteStore) -> None:
    await history(store)
    session = await store.lessons.get_session("s2")
    assert session is not None
    await store.put_session(replace(session, opted_out=True))
    step = await plan(store, batch_size=9, replay_max_age=9)
    assert set(step.replayed_ids) == {"x4", "x1"}
    assert await store.lessons.samples_named(["x2", "x1"]) == made(1)


async def test_what_was_in_a_discarded_step_comes_alone_and_first(store: SqliteStore) -> None:
    await history(store)
    step = await plan(store)
    await store.lessons.plan_step(step)
    await put_samples(store, made(6, created_at=-1.0))
    await store.lessons.finish_step(replace(step, state="discarded", replayed_ids=("x4",), reason="nan"), None)
    (waiting,) = await store.lessons.waiting()
    assert (waiting.num_samples, waiting.num_doubted) == (2, 1)
    alone = await plan(store, replay_max_age=9, anchors=3)
    assert (alone.number, alone.sample_ids, alone.replayed_ids, alone.num_anchors) == (6, ("x5",), (), 0)
    await store.lessons.plan_step(alone)
    await store.lessons.finish_step(replace(alone, state="discarded", reason="nan"), None)
    assert (await plan(store)).sample_ids == ("x6",), "discarded alone, it is not tried again"


async def test_samples_without_blame_come_back_without_doubt(store: SqliteStore) -> None:
    await put_samples(store, made(0))
    step = await plan(store)
    await store.lessons.plan_step(step)
    assert await store.lessons.finish_step(replace(step, state="discarded"), None, blameless=True)
    assert not await store.lessons.finish_step(replace(step, state="discarded"), None), "it has ended"
    (waiting,) = await store.lessons.waiting()
    assert (waiting.num_samples, waiting.num_doubted) == (1, 0)


async def test_answers_are_not_too_old_for_steps_without_effect(store: SqliteStore) -> None:
    """What answers does not change while small steps add up: its answers are no older for that."""
    await put_samples(store, made(0, 1, 2, 3))
    for number in (1, 2, 3):
        step = await plan(store, batch_size=1, max_staleness=1)
        assert (step.number, step.parent) == (number, number - 1)
        await take(store, step, "no_effect")
    assert (await plan(store, batch_size=1, max_staleness=1)).sample_ids == ("x3",)

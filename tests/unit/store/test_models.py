"""A store that is run with one model, then with another: each sees its own versions and samples; none is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.store import SqlStore
from openclaw_rl.types import Lesson, Version, VersionState, WeightsRef
from tests.factories.planned import LINE, made, planned, take, waiting
from tests.factories.stored import put_samples
from tests.factories.weights import folder_ref
from tests.stores import open_store, read_store, sqlite_only
from tests.unit.store.older import make_older


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    """Steps 1 and 2 learned from a and b for one model, step 3 from c for another; d and e wait, one for each."""
    async with await open_store(tmp_path) as opened:
        await opened.lessons.run_with("one#1")
        await put_samples(opened, [made(name) for name in "abd"], model="one#1")
        await put_samples(opened, [made(name) for name in "ce"], model="two#2")
        await take(opened, planned(1, 0, "a.0"))
        await take(opened, planned(2, 1, "b.0"))
        await opened.lessons.run_with("two#2")
        await take(opened, planned(3, 0, "c.0"))
        yield opened


async def known(store: SqlStore) -> list[tuple[int, VersionState]]:
    return [(one.number, one.state) for one in await store.lessons.versions(LINE)]


async def every(store: SqlStore) -> list[tuple[int, VersionState, str | None]]:
    return [(one.number, one.state, one.model) for one in await store.lessons.versions(LINE, every_model=True)]


async def test_each_model_has_its_own_versions_and_what_answers_under_one_stays_live(
    store: SqlStore, tmp_path: Path
) -> None:
    assert await known(store) == [(3, "live")]
    rows = [(1, "retired", "one#1"), (2, "live", "one#1"), (3, "live", "two#2")]
    assert await every(store) == rows
    reader = read_store(tmp_path)
    assert [one.number for one in reader.versions()] == [3]
    assert [one.number for one in reader.versions(LINE, every_model=True)] == [1, 2, 3]
    await store.lessons.run_with("one#1")
    assert await known(store) == [(1, "retired"), (2, "live")]
    assert await store.lessons.next_step_number(LINE) == 4, "numbers are given once"


async def test_each_model_learns_from_its_own_answers(store: SqlStore) -> None:
    lessons = store.lessons
    assert await waiting(store) == ["e.0"]
    assert [one.num_samples for one in await lessons.waiting()] == [1]
    await lessons.run_with("one#1")
    assert await waiting(store) == ["d.0"]
    step = planned(4, 2, "d.0")
    await lessons.plan_step(step)
    assert await lessons.planned_steps() == [step]
    await lessons.run_with("two#2")
    assert await lessons.planned_steps() == [], "it is taken when its model is back"
    await lessons.run_with("one#1")
    assert await lessons.finish_step(replace(step, state="discarded", replayed_ids=("a.0",)), None)
    assert await lessons.doubted_samples(LINE) == ["d.0"]
    await lessons.run_with("two#2")
    assert (await lessons.doubted_samples(LINE), [one.num_doubted for one in await lessons.waiting()]) == ([], [0])


async def test_undoing_takes_every_model_back(store: SqlStore) -> None:
    undone = await store.lessons.undo(Lesson(line=LINE, sessions=("b", "c")), reason="no", loaded={0})
    assert (undone.is_done, undone.plan.answering, undone.plan.back_to) == (True, 3, 0), "of the present model"
    assert (undone.plan.undone, undone.plan.holding) == ((2, 3), (2, 3))
    assert [row[:2] for row in await every(store)] == [(1, "live"), (2, "rolled_back"), (3, "rolled_back")]


async def test_only_the_present_models_version_must_be_loaded(store: SqlStore) -> None:
    undone = await store.lessons.undo(Lesson(line=LINE, turn=("b", 0)), reason="no", loaded=())
    assert (undone.is_done, undone.plan.back_to) == (False, 3)
    undone = await store.lessons.undo(Lesson(line=LINE, turn=("b", 0)), reason="no", loaded={3})
    assert (undone.is_done, undone.plan.answering, undone.plan.back_to, undone.plan.undone) == (True, 3, 3, (2,))
    assert [row[:2] for row in await every(store)] == [(1, "live"), (2, "rolled_back"), (3, "live")]


async def test_forgetting_reaches_every_model(store: SqlStore) -> None:
    lesson = Lesson(line=LINE, sessions=tuple("abcde"), everything=True)
    undone = await store.lessons.undo(lesson, reason="no", loaded={0})
    assert undone.plan.holding == (1, 2, 3)
    assert await store.lessons.forget(lesson, undone.plan)
    assert {one.weights for one in await store.lessons.versions(LINE, every_model=True)} == {None}


async def test_what_is_imported_stands_on_what_answers_under_the_present_model(store: SqlStore) -> None:
    version = await store.lessons.put_imported(LINE, lambda number: WeightsRef.of_folder(Path(f"/v{number}"), "ab"))
    assert (version.number, version.parent) == (4, 3)
    assert (await every(store))[-1] == (4, "candidate", "two#2")


async def test_a_version_of_an_unknown_model_belongs_to_the_first_that_answers_with_it(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await store.lessons.plan_step(planned(1, 0))
        version = Version(
            line=LINE, number=1, parent=0, state="candidate", created_at=1.0, weights=folder_ref("/v1", "ab")
        )
        await store.lessons.finish_step(replace(planned(1, 0), state="done"), version)
        for model in ("one#1", "two#2"):
            await store.lessons.run_with(model)
            assert await known(store) == [(1, "candidate")]
        await store.lessons.set_version_state(LINE, 1, "live")
        await store.lessons.run_with("one#1")
        assert (await known(store), await every(store)) == ([], [(1, "live", "two#2")])


@sqlite_only
async def test_old_rows_learn_their_model_from_their_samples(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await put_samples(store, [made("a")], model="one#1")
        await take(store, planned(1, 0, "a.0"))
        await take(store, planned(2, 1))
    make_older(tmp_path, 6)
    async with await open_store(tmp_path) as store:
        assert await every(store) == [(1, "retired", "one#1"), (2, "live", None)]


def test_a_version_says_what_it_was_trained_on() -> None:
    version = Version(line=LINE, number=1, parent=0, state="live", created_at=1.0, weights=folder_ref("", ""))
    assert version.base_model is None
    assert replace(version, model="org/name#ab12").base_model == "org/name"

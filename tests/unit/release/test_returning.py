"""Samples of versions that never answer: which come back, whether they are in doubt, and what is built on instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import EngineError, TrainError
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Lesson, Version, VersionState, WeightsRef, head_number
from tests.factories.planned import LINE, candidate, doubted, made, planned, states, take, waiting
from tests.factories.stored import put_samples
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, FakeEngine, OpenDoor


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


class Rig:
    def __init__(self, store: SqliteStore, **door: Any) -> None:
        self.engine, self.live, self.door = FakeEngine(), LiveVersions(), OpenDoor(**door)
        self.changes: list[tuple[int, VersionState]] = []
        self.releaser = Releaser(
            store.lessons,
            self.engine,
            self.door,
            self.live,
            proving=self.door,
            keeper=NOWHERE,
            save_every=100,
            on_change=lambda version: self.changes.append((version.number, version.state)),
        )


async def head(store: SqliteStore) -> int:
    return head_number(await store.lessons.versions(LINE))


async def test_what_somebody_went_back_from_below_gives_its_samples_back(store: SqliteStore) -> None:
    await put_samples(store, [made("a")])
    await take(store, planned(1, 0, "a.0"))
    await candidate(store, 2, 1, "b")
    rig = Rig(store)
    await rig.releaser.roll_back(LINE, 0)
    await rig.releaser.restore()
    assert (await states(store), rig.changes[-1]) == (["rolled_back", "retired"], (2, "retired"))
    assert (await waiting(store), await doubted(store)) == (["b.0", "b.1"], []), "a was heard, and somebody went back"
    assert all(one.is_returned for one in await store.lessons.waiting_samples(LINE, 9)), "they are not late"


async def test_samples_on_the_way_to_what_went_live_stay_learned(store: SqliteStore) -> None:
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        await candidate(store, number, number - 1, name)
    rig = Rig(store)
    await rig.releaser.restore()
    assert (await states(store), await waiting(store)) == (["retired", "retired", "live"], [])
    await rig.releaser.roll_back(LINE, 0)
    await rig.releaser.release(await candidate(store, 4, 0, "d"))
    assert (await states(store), await waiting(store)) == (["retired", "retired", "rolled_back", "live"], [])


async def test_a_chain_that_fails_gives_back_what_its_lost_beginning_had(store: SqliteStore) -> None:
    """Where nobody released, the first of a long chain lost its files, and was retired."""
    await candidate(store, 1, 0, "a")
    await candidate(store, 2, 1, "b")
    await store.lessons.set_version_state(LINE, 1, "retired", reason="newer candidates stand on it")
    await store.lessons.forget_files(LINE, [1])
    rig = Rig(store, mad=[2])
    await rig.releaser.restore()
    assert await states(store) == ["retired", "rejected"]
    assert (await waiting(store), await doubted(store)) == (["a.0", "a.1", "b.0", "b.1"], ["b.0", "b.1"])


async def test_what_the_gate_objects_to_puts_its_samples_in_doubt(store: SqliteStore) -> None:
    rig = Rig(store, mad=[1])
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    assert (await states(store), await doubted(store)) == (["rejected"], ["a.0", "a.1"])


@pytest.mark.parametrize("by", ["engine", "proof"])
async def test_what_is_not_served_as_trained_is_no_samples_fault_and_who_trains_is_told(
    store: SqliteStore, by: str
) -> None:
    rig = Rig(store, unproved=[1] if by == "proof" else [])
    await rig.releaser.restore()
    rig.engine.refuses = by == "engine"
    version = await candidate(store, 1, 0, "a")
    with pytest.raises(TrainError, match="v1 is rejected, and its samples wait: (the checksum|it is served)"):
        await rig.releaser.release(version)
    assert (await states(store), await waiting(store), await doubted(store)) == (["rejected"], ["a.0", "a.1"], [])
    rig.engine.refuses = False
    await store.lessons.plan_step(planned(2, 0, "a.0", "a.1"))
    again = replace(version, number=2, weights=folder_ref("/v2/weights", "ab"))
    await store.lessons.finish_step(replace(planned(2, 0, "a.0", "a.1"), state="done"), again)
    await rig.releaser.release(again)
    assert await states(store) == ["rejected", "live"]


async def test_a_single_sample_of_a_refused_version_comes_back_too(store: SqliteStore) -> None:
    await put_samples(store, [made("a")])
    await take(store, planned(1, 0, "a.0"))
    rig = Rig(store)
    rig.engine.refuses = True
    await rig.releaser.restore()
    assert (await states(store), await waiting(store), await doubted(store)) == (["rejected"], ["a.0"], [])


async def test_weights_that_compute_nothing_may_be_a_samples_fault(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    version = await candidate(store, 1, 0, "a")

    async def quick(candidate: Version, parent: Version | None, confirmed: Version | None) -> Any:
        raise EngineError("a scored log-prob is not finite")

    rig.door.quick = quick  # type: ignore[method-assign]
    await rig.releaser.release(version)
    assert (await states(store), await doubted(store)) == (["rejected"], ["a.0", "a.1"])


async def test_small_steps_add_up(store: SqliteStore) -> None:
    rig = Rig(store, faint=[1, 2])
    await rig.releaser.restore()
    for number, name in ((1, "a"), (2, "b")):
        await rig.releaser.release(await candidate(store, number, number - 1, name))
        assert (await head(store), await waiting(store)) == (number, [])
    assert await states(store) == ["no_effect", "no_effect"]
    first, _ = await store.lessons.versions(LINE)
    assert (first.reason, first.gate["proof"]["verdict"]) == ("no effect", "no effect")
    assert (await rig.live.label(LINE), rig.engine.retired) == (None, ["v1", "v2"])
    await rig.releaser.release(await candidate(store, 3, 2, "c"))
    assert (await states(store), await rig.live.label(LINE)) == (["no_effect", "no_effect", "live"], "v3")
    assert rig.door.compared == [("v1", "v0"), ("v2", "v0"), ("v3", "v0")], "each with what answers"
    assert await waiting(store) == []


async def test_what_has_no_effect_is_not_tried_again_at_each_start(store: SqliteStore) -> None:
    await candidate(store, 1, 0, "a")
    await candidate(store, 2, 1, "b")
    await Rig(store, faint=[2]).releaser.restore()
    assert await states(store) == ["retired", "no_effect"], "what it stands on holds less, and is not tried either"
    rig = Rig(store)
    await rig.releaser.restore()
    assert (rig.door.compared, await states(store), await head(store)) == ([], ["retired", "no_effect"], 2)
    assert await waiting(store) == []


async def test_a_step_that_fails_on_what_has_no_effect_leaves_that_to_build_on(store: SqliteStore) -> None:
    rig = Rig(store, faint=[1], mad=[2])
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    await rig.releaser.release(await candidate(store, 2, 1, "b"))
    assert (await states(store), await head(store)) == (["no_effect", "rejected"], 1)
    assert await waiting(store) == ["b.0", "b.1"]


async def test_what_has_no_effect_comes_back_when_another_one_goes_live(store: SqliteStore) -> None:
    rig = Rig(store, faint=[1])
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    imported = await store.lessons.put_imported(
        LINE, lambda number: WeightsRef.of_folder(Path(f"/v{number}/weights"), "ab")
    )
    await rig.releaser.release(imported)
    assert (await states(store), await waiting(store)) == (["retired", "live"], ["a.0", "a.1"])


async def test_what_is_undone_while_it_is_proved_is_not_built_on(store: SqliteStore) -> None:
    rig = Rig(store, faint=[1])
    await rig.releaser.restore()
    version = await candidate(store, 1, 0, "a")
    prove = rig.door.prove

    async def undone(candidate: Version, parent: Version | None) -> Any:
        await rig.releaser.undo(Lesson(line=LINE, sessions=("a",)), reason="it was wrong")
        return await prove(candidate, parent)

    rig.door.prove = undone  # type: ignore[method-assign]
    await rig.releaser.release(version)
    assert (await states(store), await head(store), await waiting(store)) == (["rolled_back"], 0, [])


async def test_another_models_versions_are_left_alone_and_answer_when_it_is_back(store: SqliteStore) -> None:
    await store.lessons.run_with("one#1")
    rig = Rig(store)
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0))
    await store.lessons.run_with("two#2")
    other = Rig(store)
    other.engine.refuses = True  # as an engine does whose model has another shape
    await other.releaser.restore()
    assert (other.changes, await other.live.label(LINE)) == ([], None)
    other.engine.refuses = False
    await other.releaser.release(await candidate(store, 2, 0))
    assert await other.live.label(LINE) == "v2"
    await store.lessons.run_with("one#1")
    again = Rig(store)
    await again.releaser.restore()
    assert await again.live.label(LINE) == "v1"
    both = await store.lessons.versions(LINE, every_model=True)
    assert [(one.state, one.model) for one in both] == [("live", "one#1"), ("live", "two#2")]

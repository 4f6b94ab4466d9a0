"""Candidates that were made without an engine: the last that passes goes live, and the rest give way to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.errors import EngineLost, EngineRefused
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.keeping import tidy
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Step, Version
from tests.factories.planned import states
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, Rig


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


async def add(store: SqliteStore, number: int, parent: int, *, path: str = "") -> Version:
    """A candidate, with the step that made it."""
    step = Step(line="local", number=number, state="planned", planned_at=1.0, seed=0, parent=parent, sample_ids=())
    version = Version(
        line="local",
        number=number,
        parent=parent,
        state="candidate",
        created_at=1.0,
        weights=folder_ref(path or f"/v{number}", "ab"),
    )
    await store.lessons.plan_step(step)
    done = Step(**{**{name: getattr(step, name) for name in step.__dataclass_fields__}, "state": "done"})
    assert await store.lessons.finish_step(done, version)
    return version


async def test_what_answers_is_measured_ahead_and_a_failure_of_that_is_none(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.prepare("local")
    await add(store, 1, 0)
    await rig.releaser.restore()
    await rig.releaser.prepare("local")
    assert rig.door.prepared == ["v0", "v1"]
    rig.door.prepare = broken  # type: ignore[method-assign]
    await rig.releaser.prepare("local")


async def broken(parent: Version | None) -> None:
    raise EngineLost("gone")


async def test_only_the_last_of_a_chain_is_tried_against_what_answers(store: SqliteStore) -> None:
    for number in (1, 2, 3):
        await add(store, number, number - 1)
    rig = Rig(store)
    await rig.releaser.restore()
    assert await states(store) == ["retired", "retired", "live"]
    assert (rig.published, rig.door.compared, await rig.live.label("local")) == (["v3"], [("v3", "v0")], "v3")
    await add(store, 4, 3)
    await rig.releaser.release(await add(store, 5, 4))
    assert await states(store) == ["retired", "retired", "retired", "retired", "live"]
    assert (rig.door.compared[1:], rig.engine.retired) == ([("v5", "v3")], [])


async def test_where_the_last_one_fails_the_one_before_it_is_tried(store: SqliteStore) -> None:
    for number in (1, 2, 3, 4):
        await add(store, number, number - 1)
    rig = Rig(store, mad=(4, 3))
    await rig.releaser.restore()
    assert await states(store) == ["retired", "live", "rejected", "rejected"]
    assert (rig.published, await rig.live.label("local")) == (["v4", "v3", "v2"], "v2")
    assert rig.engine.retired == ["v4", "v3"], "what is rejected leaves the engine"
    await asyncio.wait_for(rig.releaser.settled(), 1.0)


async def test_if_all_fail_the_base_model_answers_on(store: SqliteStore) -> None:
    for number in (1, 2):
        await add(store, number, number - 1)
    rig = Rig(store, mad=(1, 2))
    await rig.releaser.restore()
    assert (await states(store), await rig.live.label("local")) == (["rejected", "rejected"], None)


async def test_files_that_are_gone_cost_one_candidate_not_the_chain(store: SqliteStore) -> None:
    for number in (1, 2):
        await add(store, number, number - 1)
    rig = Rig(store)
    rig.engine.missing = {"v2"}
    await rig.releaser.restore()
    versions = await store.lessons.versions("local")
    assert [version.state for version in versions] == ["live", "rejected"]
    assert versions[1].reason == "the folder is gone"


async def test_an_engine_that_is_away_leaves_the_whole_chain_for_later(store: SqliteStore) -> None:
    for number in (1, 2):
        await add(store, number, number - 1)
    rig = Rig(store)
    rig.engine.is_lost = True
    await rig.releaser.restore()
    assert await states(store) == ["candidate", "candidate"]
    rig.engine.is_lost = False
    await rig.releaser.release(await add(store, 3, 2))
    assert await states(store) == ["retired", "retired", "live"]


async def test_what_stands_on_a_version_that_somebody_went_back_from_never_answers(store: SqliteStore) -> None:
    first = await add(store, 1, 0)
    rig = Rig(store)
    await rig.releaser.restore()
    await rig.releaser.release(first)
    await add(store, 2, 1)
    await rig.releaser.roll_back("local", 0)
    again = Rig(store)
    await again.releaser.restore()
    assert (await states(store), again.published) == (["rolled_back", "retired"], [])
    assert await again.live.label("local") is None


async def test_going_back_while_a_candidate_is_at_its_gate_is_not_undone_by_it(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    await rig.releaser.release(await add(store, 1, 0))
    rig.door.go_on.clear()
    at_gate = asyncio.create_task(rig.releaser.release(await add(store, 2, 1)))
    rig.door.is_asked.clear()
    await asyncio.wait_for(rig.door.is_asked.wait(), 10.0)
    await rig.releaser.roll_back("local", 0)
    await asyncio.wait_for(at_gate, 10.0)  # and nobody waits for the gate
    assert (await states(store), await rig.live.label("local")) == (["rolled_back", "retired"], None)
    assert "v2" in rig.engine.retired


async def at_the_gate(rig: Rig, candidate: Version) -> asyncio.Task[None]:
    """Its release, which stands at the gate until `go_on`."""
    rig.door.go_on.clear()
    rig.door.is_asked.clear()
    releasing = asyncio.create_task(rig.releaser.release(candidate))
    await asyncio.wait_for(rig.door.is_asked.wait(), 10.0)
    return releasing


async def test_what_has_not_passed_its_gate_cannot_be_put_live(store: SqliteStore) -> None:
    rig = Rig(store, mad=(2,))
    await rig.releaser.restore()
    releasing = await at_the_gate(rig, await add(store, 1, 0))
    with pytest.raises(NoSuchVersion, match=r"1 never answered \(candidate\): .* before: 0$"):
        await rig.releaser.roll_back("local", 1)
    rig.door.go_on.set()
    await releasing
    await rig.releaser.release(await add(store, 2, 1))
    with pytest.raises(NoSuchVersion, match=r"2 never answered \(rejected: it is mad\): .* before: 0, 1$"):
        await rig.releaser.roll_back("local", 2)
    assert (await states(store), await rig.live.label("local")) == (["live", "rejected"], "v1")


@pytest.mark.parametrize("mad", [(), (1,)])
async def test_what_is_put_live_untried_while_it_is_at_its_gate_stays_loaded(
    store: SqliteStore, mad: tuple[int, ...]
) -> None:
    rig = Rig(store, mad=mad)
    rig.door.is_deaf = True
    await rig.releaser.restore()
    releasing = await at_the_gate(rig, await add(store, 1, 0))
    assert await rig.releaser.roll_back("local", 1, untried=True) == "v1"
    rig.door.go_on.set()
    await asyncio.wait_for(releasing, 10.0)
    assert (await states(store), rig.engine.retired) == (["live"], [])


async def test_what_answers_is_loaded_again_by_whoever_goes_back_to_it(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    await rig.releaser.release(await add(store, 1, 0))
    rig.engine.published.clear()
    assert await rig.releaser.roll_back("local", 1) == "v1"
    assert rig.published == ["v1"]


async def test_the_parent_of_what_is_at_the_gate_stays_loaded(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    for number in (1, 2):
        await rig.releaser.release(await add(store, number, number - 1))
    rig.door.is_deaf = True
    releasing = await at_the_gate(rig, await add(store, 3, 2))
    await rig.releaser.roll_back("local", 1)
    await rig.releaser.roll_back("local", 0)
    assert "v2" not in rig.engine.retired
    rig.door.go_on.set()
    await asyncio.wait_for(releasing, 10.0)
    assert await states(store) == ["rolled_back", "rolled_back", "retired"]
    assert {"v2", "v3"} <= set(rig.engine.retired)


async def test_a_person_need_not_wait_until_what_the_last_run_left_was_at_its_gate(store: SqliteStore) -> None:
    await add(store, 1, 0)
    rig = Rig(store)
    rig.door.go_on.clear()
    restoring = asyncio.create_task(rig.releaser.restore())
    await asyncio.wait_for(rig.door.is_asked.wait(), 10.0)
    await asyncio.wait_for(rig.releaser.loaded_live(), 1.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rig.releaser.settled(), 0.05)
    rig.door.go_on.set()
    await restoring


async def test_files_that_nobody_needs_go_after_their_rows(store: SqliteStore, tmp_path: Path) -> None:
    for number in range(1, 9):
        folder = tmp_path / f"v{number}" / "weights"
        folder.mkdir(parents=True)
        await add(store, number, number - 1, path=str(folder))
        await store.lessons.set_version_state("local", number, "retired" if number < 8 else "live")
    await tidy(store.lessons, NOWHERE, "local", save_every=2)
    kept = [number for number in range(1, 9) if (tmp_path / f"v{number}").exists()]
    assert kept == [2, 4, 5, 6, 7, 8], "the newest five, and every second"
    assert [version.number for version in await store.lessons.versions("local") if version.weights] == kept


async def released(store: SqliteStore, num: int) -> Rig:
    """So many versions went live one after the other; then everything was started anew."""
    for number in range(1, num + 1):
        await add(store, number, number - 1)
        await Rig(store).releaser.restore()
    rig = Rig(store)
    await rig.releaser.restore()
    return rig


async def test_what_somebody_looks_at_stays_loaded_until_nobody_does(store: SqliteStore) -> None:
    rig = await released(store, 3)
    assert await states(store) == ["retired", "retired", "live"]
    async with rig.releaser.loaded("local", 1) as label, rig.releaser.loaded("local", 1):
        assert (label, rig.published[-1], rig.engine.retired) == ("v1", "v1", [])
    assert rig.engine.retired == ["v1"], "once, by who looked last"
    async with rig.releaser.loaded("local", 3), rig.releaser.loaded("local", 0) as base:
        assert base == "v0"
    assert rig.engine.retired == ["v1"], "what answers stays"


async def test_what_is_replaced_while_somebody_looks_at_it_goes_afterwards(store: SqliteStore) -> None:
    await add(store, 1, 0)
    rig = Rig(store)
    await rig.releaser.restore()
    async with rig.releaser.loaded("local", 1):
        for number in (2, 3):
            await rig.releaser.release(await add(store, number, number - 1))
        assert await states(store) == ["retired", "retired", "live"]
        assert rig.engine.retired == []
    assert rig.engine.retired == ["v1"]


async def test_going_back_to_what_somebody_looks_at_keeps_it(store: SqliteStore) -> None:
    rig = await released(store, 2)
    async with rig.releaser.loaded("local", 1):
        await rig.releaser.roll_back("local", 1)
    assert "v1" not in rig.engine.retired
    assert await rig.live.label("local") == "v1"


async def test_looking_at_what_is_not_there_says_what_is(store: SqliteStore) -> None:
    await add(store, 1, 0)
    rig = Rig(store)
    with pytest.raises(NoSuchVersion, match="there are 0, 1"):
        async with rig.releaser.loaded("local", 7):
            pass
    rig.engine.missing = {"v1"}
    with pytest.raises(EngineRefused):
        async with rig.releaser.loaded("local", 1):
            pass

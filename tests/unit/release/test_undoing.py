"""A lesson is taken back on the engine as in the rows: what answers is loaded before it answers, what held it goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from openclaw_rl.errors import EngineLost, TrainError
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Lesson, Version
from tests.factories.planned import history, made, of, planned, states
from tests.factories.stored import put_samples
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, FakeEngine, OpenDoor, Rig


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


async def restored(store: SqliteStore) -> Rig:
    rig = Rig(store)
    await rig.releaser.restore()
    rig.engine.published.clear()
    return rig


async def test_the_version_before_the_lesson_is_loaded_and_then_answers(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    assert await rig.live.label("local") == "v3"
    undone = await rig.releaser.undo(of("b"), reason="it was wrong")
    assert (undone.is_done, rig.published, await rig.live.label("local")) == (True, ["v1"], "v1")
    assert (await states(store), rig.engine.retired) == (["live", "rolled_back", "rolled_back"], [])
    first, *_ = await store.lessons.versions("local")
    assert first.gate["kl"] == 0.1
    assert first.gate["live_at"] > 1.0, "it is watched anew"


async def test_before_the_first_version_only_the_base_model_is_left(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    await rig.releaser.undo(of("a"), reason="it was wrong")
    assert (rig.published, await rig.live.label("local"), rig.engine.retired) == ([], None, [])


async def test_who_has_chosen_what_is_undone_finds_it_until_something_else_steps_aside(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    await rig.releaser.undo(of("d"), reason="it was wrong")
    assert (await rig.live.label("local"), rig.engine.retired) == ("v2", [])
    await rig.releaser.undo(of("b"), reason="it was wrong too")
    assert (await rig.live.label("local"), rig.engine.retired) == ("v1", ["v3"])


async def test_what_is_forgotten_leaves_the_engine_at_once(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    await rig.releaser.undo(of("d"), reason="it was wrong")
    await rig.releaser.undo(Lesson(line="local", sessions=("b", "d")), reason="forgotten")
    assert (await rig.live.label("local"), set(rig.engine.retired)) == ("v1", {"v2", "v3"})


class LateRows:
    """Between its first answer and whatever is asked next a step makes another version."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.is_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.lessons, name)

    async def versions(self, line: str | None = None) -> Sequence[Version]:
        known = await self._store.lessons.versions(line)
        if self.is_late:
            self.is_late = False
            await put_samples(self._store, [made("e")])
            await self._store.lessons.plan_step(planned(4, 3, "e.0"))
            fourth = replace(
                known[-1], number=4, parent=3, state="candidate", gate=None, weights=folder_ref("/v4", "ab")
            )
            assert await self._store.lessons.finish_step(replace(planned(4, 3, "e.0"), state="done"), fourth)
        return known


async def test_a_version_that_is_made_meanwhile_is_undone_with_the_others(store: SqliteStore) -> None:
    await history(store)
    rows, live, door, changed = LateRows(store), LiveVersions(), OpenDoor(), list[tuple[int, str]]()
    releaser = Releaser(
        cast("LearningStore", rows),
        FakeEngine(),
        door,
        live,
        proving=door,
        keeper=NOWHERE,
        save_every=100,
        on_change=lambda version: changed.append((version.number, version.state)),
    )
    await releaser.restore()
    rows.is_late = True
    undone = await releaser.undo(of("d"), reason="it was wrong")
    assert (undone.plan.undone, await live.label("local")) == ((3, 4), "v2")
    assert changed == [(2, "live"), (3, "rolled_back"), (4, "rolled_back")]


async def test_files_that_the_engine_refuses_are_as_good_as_gone(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    rig.engine.missing = {"v1"}
    undone = await rig.releaser.undo(of("b"), reason="it was wrong")
    assert (undone.plan.back_to, await rig.live.label("local"), undone.num_returned) == (0, None, 3)


async def test_an_engine_that_is_away_changes_nothing(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    rig.engine.is_lost = True
    with pytest.raises(Exception, match="gone"):
        await rig.releaser.undo(of("b"), reason="it was wrong")
    assert await states(store) == ["retired", "retired", "live"]


@pytest.mark.parametrize("error", [None, EngineLost("gone"), TrainError("its files are gone")])
@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_candidate_that_is_forgotten_while_it_is_measured_never_answers(
    store: SqliteStore, is_deaf: bool, error: Exception | None
) -> None:
    rig = await restored(store)
    rig.door.is_deaf, rig.door.error = is_deaf, error
    await put_samples(store, [made("a")])
    await store.lessons.plan_step(planned(1, 0, "a.0"))
    candidate = Version(
        line="local", number=1, parent=0, state="candidate", created_at=1.0, weights=folder_ref("/v1", "ab")
    )
    assert await store.lessons.finish_step(replace(planned(1, 0, "a.0"), state="done"), candidate)
    rig.door.go_on.clear()
    releasing = asyncio.create_task(rig.releaser.release(candidate))
    await rig.door.is_asked.wait()
    undone = await rig.releaser.undo(Lesson(line="local", sessions=("a",)), reason="it was wrong")
    assert (undone.plan.undone, rig.engine.retired) == ((1,), ["v1"]), "what is forgotten answers nobody any more"
    if is_deaf:
        rig.door.go_on.set()
    await asyncio.wait_for(releasing, 10.0)  # if it hears, nobody waits for the gate
    assert (await states(store), await rig.live.label("local")) == (["rolled_back"], None)
    assert (rig.engine.retired[-1], rig.releaser._waiting) == ("v1", set()), "and it is not tried again"


async def test_what_was_taken_back_cannot_be_gone_back_to(store: SqliteStore) -> None:
    await history(store)
    rig = await restored(store)
    await rig.releaser.undo(of("b"), reason="turn b.0 was undone")
    for number in (2, 3):
        with pytest.raises(NoSuchVersion, match=rf"version {number} were given back \(turn b.0 was undone\)"):
            await rig.releaser.roll_back("local", number, untried=number == 3)
    assert await rig.live.label("local") == "v1"
    await rig.releaser.roll_back("local", 0)
    assert await rig.releaser.roll_back("local", 1) == "v1", "nobody took back what that one learned"

"""What the last run left answers again, line by line; whatever has to wait is tried again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import EngineError, EngineLost, TrainerLost
from openclaw_rl.release.gate.prove import Proof
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Publication, Step, Version
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, FakeEngine, HeldDoor


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


async def add(store: SqliteStore, number: int = 1, *, line: str = "local", is_live: bool = True) -> Version:
    """A version on the one before it, with the step that made it."""
    step = Step(line=line, number=number, state="planned", planned_at=1.0, seed=0, parent=number - 1, sample_ids=())
    path = f"/{line}/v{number}"
    version = Version(
        line=line, number=number, parent=number - 1, state="candidate", created_at=1.0, weights=folder_ref(path, "ab")
    )
    await store.lessons.plan_step(step)
    assert await store.lessons.finish_step(replace(step, state="done"), version)
    if is_live:
        await store.lessons.set_version_state(line, number, "live", gate={"live_at": 1.0})
    return version


class MoodyEngine(FakeEngine):
    """Fails to load some versions, or takes until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, Exception] = {}
        self.num_failed = 0
        self.is_slow = False
        self.is_asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def publish(self, publication: Publication) -> None:
        self.is_asked.set()
        if self.is_slow:
            await self.go_on.wait()
        if (error := self.failing.get(publication.version)) is not None:
            self.num_failed += 1
            raise error
        await super().publish(publication)


class Trying(HeldDoor):
    """A trainer that dies over so many proofs."""

    def __init__(self) -> None:
        super().__init__(mad=())
        self.deaths = 0

    async def prove(self, candidate: Version, parent: Version | None) -> Proof:
        if self.deaths:
            self.deaths -= 1
            raise TrainerLost("it died")
        return await super().prove(candidate, parent)


class Rig:
    def __init__(self, store: SqliteStore, *, max_wait_s: float = 30.0) -> None:
        self.store, self.engine, self.door = store, MoodyEngine(), Trying()
        self.live = LiveVersions(max_wait_s=max_wait_s)
        self.releaser = Releaser(
            store.lessons, self.engine, self.door, self.live, proving=self.door, keeper=NOWHERE, save_every=100
        )

    async def states(self, line: str = "local") -> list[str]:
        return [version.state for version in await self.store.lessons.versions(line)]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openclaw_rl.release.releaser.RETRY", Backoff(first_s=0.01, longest_s=0.02))


async def comes_true(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(500):
        if await condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come true in 5 s")


async def test_a_line_waits_for_its_own_version_and_no_other() -> None:
    live = LiveVersions()
    early = asyncio.create_task(live.label("bob"))
    await asyncio.sleep(0)
    assert not early.done(), "before the rows are read nobody knows who waits"
    live.expect(["ann", "cleo"])
    waiting = asyncio.create_task(live.label("ann"))
    assert await asyncio.wait_for(early, 1.0) is None
    assert await asyncio.wait_for(live.label("bob"), 1.0) is None
    live.set("cleo", "v3.cleo")
    assert await asyncio.wait_for(live.label("cleo"), 1.0) == "v3.cleo"
    assert not waiting.done()
    live.set("ann", "v1.ann")
    assert await asyncio.wait_for(waiting, 1.0) == "v1.ann"


async def test_nobody_waits_for_ever_and_only_the_first_ones_wait_at_all() -> None:
    live = LiveVersions(max_wait_s=0.5)
    live.expect(["ann"])
    assert await asyncio.wait_for(live.label("ann"), 5.0) is None
    assert await asyncio.wait_for(live.label("ann"), 0.4) is None, "the time of the line is over"
    assert live.is_expected("ann")
    live.set("ann", "v1.ann")
    assert (await live.label("ann"), live.is_expected("ann")) == ("v1.ann", False)


async def test_a_version_that_cannot_be_loaded_holds_up_no_other_line(store: SqliteStore) -> None:
    for line in ("ann", "bob"):
        await add(store, line=line)
    rig = Rig(store)
    rig.engine.failing = {"v1.ann": EngineError("out of memory")}
    await asyncio.wait_for(rig.releaser.restore(), 5.0)
    assert await asyncio.wait_for(rig.live.label("bob"), 1.0) == "v1.bob"
    await asyncio.wait_for(rig.releaser.settled(), 1.0)


async def test_the_base_model_answers_until_the_version_is_loaded_after_all(store: SqliteStore, hasty: None) -> None:
    await add(store)
    rig = Rig(store, max_wait_s=0.01)
    rig.engine.failing = {"v1": EngineLost("gone")}
    running = asyncio.create_task(rig.releaser.run())
    assert await asyncio.wait_for(rig.live.label("local"), 5.0) is None

    async def is_tried_again() -> bool:
        return rig.engine.num_failed > 3

    await comes_true(is_tried_again)
    assert await rig.states() == ["live"], "it is the one that answers as soon as it can"
    rig.engine.failing.clear()

    async def answers() -> bool:
        return await rig.live.label("local") == "v1"

    await comes_true(answers)
    running.cancel()


async def test_a_candidate_that_has_to_wait_is_tried_again_by_itself(store: SqliteStore, hasty: None) -> None:
    rig = Rig(store)
    running = asyncio.create_task(rig.releaser.run())
    await asyncio.wait_for(rig.releaser.settled(), 5.0)
    rig.door.deaths = 3
    await rig.releaser.release(await add(store, is_live=False))
    assert await rig.states() == ["candidate"]

    async def is_live() -> bool:
        return await rig.states() == ["live"]

    await comes_true(is_live)
    assert await rig.live.label("local") == "v1"
    num_tries = len(rig.door.compared)
    await asyncio.sleep(0.1)
    assert len(rig.door.compared) == num_tries, "what is done is done"
    rig.door.deaths = 1
    await rig.releaser.release(await add(store, 2, is_live=False))

    async def is_next() -> bool:
        return await rig.states() == ["retired", "live"]

    await comes_true(is_next)
    running.cancel()


async def test_a_candidate_that_a_crash_left_is_tried_again_by_itself(store: SqliteStore, hasty: None) -> None:
    await add(store, is_live=False)
    rig = Rig(store)
    rig.door.deaths = 1
    running = asyncio.create_task(rig.releaser.run())

    async def is_live() -> bool:
        return await rig.states() == ["live"]

    await comes_true(is_live)
    running.cancel()


async def test_a_candidate_waits_as_long_as_what_answers_is_not_loaded(store: SqliteStore) -> None:
    """Compared with a version that the engine has not it would be rejected for nothing."""
    await add(store)
    rig = Rig(store)
    rig.engine.failing = {"v1": EngineError("out of memory")}
    await rig.releaser.restore()
    second = await add(store, 2, is_live=False)
    await rig.releaser.release(second)
    assert (await rig.states(), rig.door.compared) == (["live", "candidate"], [])
    rig.engine.failing.clear()
    await rig.releaser.release(second)
    assert (await rig.states(), rig.door.compared) == (["retired", "live"], [("v2", "v1")])


async def test_going_back_while_the_last_version_is_being_loaded_is_not_undone_by_that(store: SqliteStore) -> None:
    await add(store)
    rig = Rig(store)
    rig.engine.is_slow = True
    restoring = asyncio.create_task(rig.releaser.restore())
    await asyncio.wait_for(rig.engine.is_asked.wait(), 5.0)
    assert await asyncio.wait_for(rig.releaser.roll_back("local", 0), 5.0) == "v0"
    rig.engine.go_on.set()
    await asyncio.wait_for(restoring, 5.0)
    assert (await asyncio.wait_for(rig.live.label("local"), 1.0), await rig.states()) == (None, ["rolled_back"])


async def test_a_file_that_is_refused_after_somebody_went_back_is_no_objection(store: SqliteStore) -> None:
    await add(store)
    rig = Rig(store)
    rig.engine.is_slow, rig.engine.missing = True, {"v1"}
    restoring = asyncio.create_task(rig.releaser.restore())
    await asyncio.wait_for(rig.engine.is_asked.wait(), 5.0)
    await rig.releaser.roll_back("local", 0, reason="bad")
    rig.engine.go_on.set()
    await asyncio.wait_for(restoring, 5.0)
    (version,) = await store.lessons.versions("local")
    assert (version.state, version.reason) == ("rolled_back", "bad")


async def test_what_the_last_run_left_and_what_is_new_are_not_tried_at_once(store: SqliteStore) -> None:
    await add(store, line="ann", is_live=False)
    rig = Rig(store)
    rig.door.go_on.clear()
    restoring = asyncio.create_task(rig.releaser.restore())
    await asyncio.wait_for(rig.door.is_asked.wait(), 5.0)
    releasing = asyncio.create_task(rig.releaser.release(await add(store, line="bob", is_live=False)))
    await asyncio.sleep(0.05)
    assert rig.door.compared == [("v1.ann", "v0")]
    rig.door.go_on.set()
    await asyncio.wait_for(asyncio.gather(restoring, releasing), 5.0)
    assert await rig.states("bob") == ["live"]


async def test_a_version_that_cannot_be_brought_back_gives_its_place_to_the_one_before(store: SqliteStore) -> None:
    """The engine let it out of its memory, and its files are not what they were when it needs them again."""
    await add(store)
    await add(store, 2)
    await add(store, line="bob")
    rig = Rig(store)
    await rig.releaser.restore()
    rig.live.on_lost = rig.releaser.unreadable
    await rig.live.lost("v1", "it is not the one that answers")
    assert await rig.states() == ["retired", "live"]
    await rig.live.lost("v2", "the checksum differs")
    assert await rig.states() == ["live", "rejected"]
    (_, lost) = await store.lessons.versions("local")
    assert lost.reason == "the checksum differs"
    assert (await rig.live.label("local"), await rig.live.label("bob")) == ("v1", "v1.bob")


async def test_lines_that_somebody_waits_for_are_loaded_first(store: SqliteStore) -> None:
    for line in ("ann", "bob", "cleo", "dora"):
        await add(store, line=line)
    rig = Rig(store)
    rig.engine.is_slow = True
    restoring = asyncio.create_task(rig.releaser.restore())
    await rig.engine.is_asked.wait()
    waiting = []
    for line in ("dora", "cleo"):
        waiting.append(asyncio.create_task(rig.live.label(line)))
        await asyncio.sleep(0)
    rig.engine.go_on.set()
    await restoring
    assert [await one for one in waiting] == ["v1.dora", "v1.cleo"]
    assert [one.version for one in rig.engine.published] == ["v1.ann", "v1.dora", "v1.cleo", "v1.bob"]

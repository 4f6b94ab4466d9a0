"""A version answers after its quick check, and stays if its full check finds nothing against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import EngineError, EngineLost
from openclaw_rl.release import releaser as releaser_module
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.gate.report import GateReport
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import MAX_ON_PROBATION, Releaser
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Version
from tests.factories.planned import candidate, doubted, states, waiting
from tests.fakes.release import NOWHERE, FakeEngine, OpenDoor


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


class SlowDoor(OpenDoor):
    """Its full check can be held, and can fail."""

    def __init__(self, **found: Any) -> None:
        super().__init__(**found)
        self.go_on, self.is_asked = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.errors: list[Exception] = []

    async def full(self, candidate: Version, confirmed: Version | None) -> GateReport:
        report = await super().full(candidate, confirmed)
        self.is_asked.set()
        await self.go_on.wait()
        if self.errors:
            raise self.errors.pop()
        return report


class Rig:
    def __init__(self, store: SqliteStore, *, probation: bool = True, **found: Any) -> None:
        self.store = store
        self.engine, self.live, self.door = FakeEngine(), LiveVersions(), SlowDoor(**found)
        self.releaser = Releaser(
            store.lessons,
            self.engine,
            self.door,
            self.live,
            proving=self.door,
            keeper=NOWHERE,
            save_every=100,
            probation=probation,
        )

    @asynccontextmanager
    async def confirming(self) -> AsyncIterator[None]:
        """Full checks run beside what is inside."""
        task = asyncio.create_task(self.releaser.confirm())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    async def version(self, number: int) -> Version:
        return (await self.store.lessons.versions("local"))[number - 1]

    async def until(self, *expected: str) -> None:
        async with asyncio.timeout(5.0):
            while await states(self.store) != list(expected):  # noqa: ASYNC110 (rows have no event)
                await asyncio.sleep(0.01)

    async def until_confirmed(self, number: int) -> None:
        async with asyncio.timeout(5.0):
            while (await self.version(number)).on_probation:  # noqa: ASYNC110 (rows have no event)
                await asyncio.sleep(0.01)


async def test_it_answers_on_probation_and_is_confirmed(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    rig.door.go_on.clear()
    async with rig.confirming():
        await rig.releaser.release(await candidate(store, 1, 0, "a"))
        await rig.door.is_asked.wait()
        version = await rig.version(1)
        assert (version.state, version.on_probation, await rig.live.label("local")) == ("live", True, "v1")
        live_at = version.gate["live_at"]
        rig.door.go_on.set()
        await rig.until_confirmed(1)
    version = await rig.version(1)
    assert (version.state, version.gate["check"], version.gate["live_at"]) == ("live", "full", live_at)
    assert version.gate["proof"]["verdict"] == "proved", "what the quick check proved is kept"
    assert rig.door.checked_fully == [("v1", "v0")]


async def test_what_fails_its_full_check_goes_with_its_samples_and_all_that_stands_on_it(store: SqliteStore) -> None:
    rig = Rig(store, sly=(2,))
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    async with rig.confirming():
        await rig.until_confirmed(1)
    await rig.releaser.release(await candidate(store, 2, 1, "b"))
    await candidate(store, 3, 2, "c")  # made while the full check of 2 goes on
    async with rig.confirming():
        await rig.until("live", "rejected", "retired")
    assert await rig.live.label("local") == "v1"
    assert (await rig.version(2)).reason == "it is sly"
    assert rig.door.checked_fully == [("v1", "v0"), ("v2", "v1")]
    assert await doubted(store) == ["b.0", "b.1"], "one of them may be the reason"
    assert sorted(await waiting(store)) == ["b.0", "b.1", "c.0", "c.1"]
    assert "v2" in rig.engine.retired


async def test_in_a_burst_only_the_last_one_is_checked_fully(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    rig.door.go_on.clear()
    async with rig.confirming():
        await rig.releaser.release(await candidate(store, 1, 0, "a"))
        await rig.door.is_asked.wait()
        await rig.releaser.release(await candidate(store, 2, 1, "b"))  # the check of 1 gives way
        rig.door.go_on.set()
        await rig.until_confirmed(2)
    assert await states(store) == ["retired", "live"]
    assert rig.door.checked_fully[-1] == ("v2", "v0"), "with the last version that was confirmed"
    assert rig.door.compared == [("v1", "v0"), ("v2", "v1")], "the quick check compares with what answers"


async def test_where_the_last_one_fails_the_one_before_it_answers_and_is_checked(store: SqliteStore) -> None:
    rig = Rig(store, sly=(2,))
    await rig.releaser.restore()
    for number, session in ((1, "a"), (2, "b")):
        await rig.releaser.release(await candidate(store, number, number - 1, session))
    async with rig.confirming():
        await rig.until("live", "rejected")
        await rig.until_confirmed(1)
    assert (await rig.live.label("local"), rig.door.checked_fully) == ("v1", [("v2", "v0"), ("v1", "v0")])


async def test_after_the_base_model_nothing_bad_is_left(store: SqliteStore) -> None:
    rig = Rig(store, sly=(1, 2))
    await rig.releaser.restore()
    for number, session in ((1, "a"), (2, "b")):
        await rig.releaser.release(await candidate(store, number, number - 1, session))
    async with rig.confirming():
        await rig.until("rejected", "rejected")
    assert await rig.live.label("local") is None


async def test_a_candidate_waits_for_a_full_check_after_too_many_on_probation(store: SqliteStore) -> None:
    rig = Rig(store)
    await rig.releaser.restore()
    for number in range(1, MAX_ON_PROBATION + 1):
        await rig.releaser.release(await candidate(store, number, number - 1, f"s{number}"))
    assert rig.door.checked_fully == []
    last = MAX_ON_PROBATION + 1
    await rig.releaser.release(await candidate(store, last, last - 1, "last"))
    assert rig.door.checked_fully == [(f"v{MAX_ON_PROBATION}", "v0")]
    assert (await states(store))[-1] == "live"


async def test_a_bad_one_that_a_candidate_waited_for_takes_the_candidate_along(store: SqliteStore) -> None:
    rig = Rig(store, sly=(MAX_ON_PROBATION,))
    await rig.releaser.restore()
    for number in range(1, MAX_ON_PROBATION + 2):
        await rig.releaser.release(await candidate(store, number, number - 1, f"s{number}"))
    assert (await states(store))[-3:] == ["live", "rejected", "retired"]


async def test_a_person_who_goes_back_meanwhile_wins(store: SqliteStore) -> None:
    rig = Rig(store, sly=(1,))
    await rig.releaser.restore()
    rig.door.go_on.clear()
    async with rig.confirming():
        await rig.releaser.release(await candidate(store, 1, 0, "a"))
        await rig.door.is_asked.wait()
        await rig.releaser.roll_back("local", 0)
        rig.door.go_on.set()
        await asyncio.sleep(0.05)
    assert await states(store) == ["rolled_back"]


async def test_an_engine_that_is_away_delays_the_check_and_one_that_computes_nothing_fails_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser_module, "RETRY", replace(releaser_module.RETRY, first_s=0.01))
    rig = Rig(store)
    await rig.releaser.restore()
    rig.door.errors = [EngineError("a log-prob is not finite"), EngineLost("gone"), EngineLost("gone")]
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    async with rig.confirming():
        await rig.until("rejected")
    assert len(rig.door.checked_fully) == 3
    assert (await rig.version(1)).reason == "a log-prob is not finite"


async def test_what_was_on_probation_before_a_restart_is_checked_after_it(store: SqliteStore) -> None:
    first = Rig(store)
    await first.releaser.restore()
    await first.releaser.release(await candidate(store, 1, 0, "a"))
    rig = Rig(store, sly=(1,))
    await rig.releaser.restore()
    assert await rig.live.label("local") == "v1"
    async with rig.confirming():
        await rig.until("rejected")


async def test_without_probation_the_full_check_comes_first(store: SqliteStore) -> None:
    rig = Rig(store, probation=False, sly=(2,))
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    await rig.releaser.release(await candidate(store, 2, 1, "b"))
    assert await states(store) == ["live", "rejected"]
    assert not (await rig.version(1)).on_probation


async def test_nobody_goes_back_to_what_a_full_check_rejected(store: SqliteStore) -> None:
    rig = Rig(store, sly=(1,))
    await rig.releaser.restore()
    await rig.releaser.release(await candidate(store, 1, 0, "a"))
    async with rig.confirming():
        await rig.until("rejected")
    with pytest.raises(NoSuchVersion, match="--untried"):
        await rig.releaser.roll_back("local", 1)

"""Whoever looks on is told of every version whose state changed, after its row says so."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.types import Version
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, VERSION, FakeEngine, OpenDoor, Rows


def watched(rows: Rows, over: FakeEngine, door: OpenDoor | None = None) -> tuple[Releaser, list[tuple[int, str, str]]]:
    seen: list[tuple[int, str, str]] = []

    def on_change(version: Version) -> None:
        assert rows.rows[version.number].state == version.state
        seen.append((version.number, version.state, version.reason))

    live = LiveVersions()
    live.expect(())
    door = door or OpenDoor()
    return Releaser(
        cast("LearningStore", rows), over, door, live, proving=door, keeper=NOWHERE, save_every=1, on_change=on_change
    ), seen


async def test_live_and_going_back() -> None:
    rows = Rows(VERSION)
    releaser, seen = watched(rows, FakeEngine())
    await releaser.release(VERSION)
    rows.rows[2] = replace(VERSION, number=2, parent=1, weights=folder_ref("/v2", "ab"))
    await releaser.release(rows.rows[2])
    assert seen == [(1, "live", ""), (2, "live", "")]
    del seen[:]
    await releaser.roll_back("local", 1)
    assert seen == [(1, "live", ""), (2, "rolled_back", "version 1 was put live")]
    await releaser.roll_back("local", 0)
    assert seen[2:] == [(1, "rolled_back", "version 0 was put live")]


async def test_rejected_by_the_gate_and_by_the_engine() -> None:
    releaser, seen = watched(Rows(VERSION), FakeEngine(), OpenDoor(mad=[1]))
    await releaser.release(VERSION)
    assert seen == [(1, "rejected", "it is mad")]
    over = FakeEngine()
    over.refuses = True
    releaser, seen = watched(Rows(replace(VERSION, state="live")), over)
    await releaser.restore()
    assert seen == [(1, "rejected", "the checksum is another one")]


async def test_a_candidate_that_waits_did_not_change() -> None:
    over = FakeEngine()
    over.is_lost = True
    releaser, seen = watched(Rows(VERSION), over)
    await releaser.release(VERSION)
    assert seen == []

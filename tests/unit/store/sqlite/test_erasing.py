"""Erasing goes on between the commits of those who talk, says when it is done, and is taken up again if it is not."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.release.undo.forgetting import Forgetting
from openclaw_rl.store import SqliteStore
from openclaw_rl.store.sqlite import database, writer
from openclaw_rl.types import TRACES_LEFT
from tests.factories.turns import make_session, make_turn
from tests.fakes.release import NOWHERE


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        for name in ("a-marker", "b-marker"):
            await opened.put_session(make_session(name))
            for index in range(4):
                await opened.put_turn(make_turn(index, session=name, text=f"{name} " * 300))
        yield opened


def traces(directory: Path, words: str) -> bool:
    return any(words.encode() in path.read_bytes() for path in directory.iterdir())


async def test_it_does_not_wait_for_quiet(store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page in each part, so that there are many; and somebody always talks."""
    monkeypatch.setattr(database, "MAX_SCRUBBED", 1)
    talking = asyncio.create_task(talk(store))
    await store.lessons.delete_session("a-marker")
    before = store.commits
    assert await store.erase()
    assert store.commits > before + 10, "others were not kept waiting until it was done"
    talking.cancel()
    assert (traces(tmp_path, "a-marker"), traces(tmp_path, "b-marker")) == (False, True)


async def talk(store: SqliteStore) -> None:
    await store.put_session(make_session("talk"))
    for index in range(10**6):
        await store.put_turn(make_turn(index, session="talk"))


async def test_the_flag_says_when_the_bytes_are_gone(store: SqliteStore) -> None:
    assert await store.lessons.flag(TRACES_LEFT) is None
    await store.lessons.delete_session("a-marker")
    assert await store.lessons.flag(TRACES_LEFT) is not None
    assert await store.erase()
    assert await store.lessons.flag(TRACES_LEFT) is None


async def test_what_is_deleted_while_it_erases_keeps_the_flag_up(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_SCRUBBED", 1)
    await store.lessons.delete_session("a-marker")
    erasing = asyncio.create_task(store.erase())
    await asyncio.sleep(0.05)
    assert not erasing.done()
    await store.lessons.delete_session("b-marker")
    assert await erasing
    assert await store.lessons.flag(TRACES_LEFT) is not None
    assert await store.erase()
    assert await store.lessons.flag(TRACES_LEFT) is None


async def test_a_reader_with_an_old_snapshot_delays_it_and_nobody_else(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 0.2)
    monkeypatch.setattr("openclaw_rl.release.undo.forgetting.AGAIN_S", 0.05)
    path = tmp_path / "store.sqlite3"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reading:
        reading.execute("BEGIN")
        assert reading.execute("SELECT count(*) FROM turn").fetchone() == (8,)
        await store.lessons.delete_session("a-marker")
        assert not await store.erase()
        await store.put_session(make_session("others"))
        assert traces(tmp_path, "a-marker")
    later = asyncio.create_task(forgetting(store).run())
    while await store.lessons.flag(TRACES_LEFT) is not None:  # noqa: ASYNC110 (another task takes it down)
        await asyncio.sleep(0.01)
    later.cancel()
    assert not traces(tmp_path, "a-marker")


def forgetting(store: SqliteStore) -> Forgetting:
    async def nothing(_: Any) -> Any:
        raise AssertionError("nothing is to be taken back")

    return Forgetting(
        log=store.lessons,
        keeper=NOWHERE,
        take_back=nothing,
        let_go=lambda _: nullcontext(),
        forget_cache=nothing,
        forget_records=lambda _: None,
        erase=store.erase,
    )

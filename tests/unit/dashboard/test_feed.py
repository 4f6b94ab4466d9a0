"""What open pages are told: bounded for each, of their own line alone, and nothing is looked at where none is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.dashboard.server.feed import MAX_PAGES, MAX_WAITING, Feed, Happened, OpenPage
from openclaw_rl.dashboard.server.visiting import Visitor
from openclaw_rl.errors import RequestError
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Feedback
from openclaw_rl.views.page.live import LiveMachine, LiveTurn
from openclaw_rl.views.rows import open_rows
from tests.factories.lessons import SESSION, fill, settings

ANN, OWNER = Visitor(user="ann"), Visitor(user="local")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as made:
        yield made


@pytest.fixture
async def feed(store: SqliteStore, tmp_path: Path) -> AsyncIterator[Feed]:
    made = Feed(open_rows(settings(tmp_path).store), store.lessons, LiveVersions(), warm=lambda: None)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.wait((running,))


def turn(user: str, number: int = 0) -> Happened:
    return Happened(user=user, told=LiveTurn(user=user, session="s", turn=f"s.{number}"))


async def test_a_change_is_told_to_whom_it_concerns(feed: Feed, store: SqliteStore) -> None:
    with feed.open(ANN) as hers, feed.open(OWNER) as owners, feed.open(Visitor(user="bob")) as others:
        for page in (hers, owners, others):
            assert (await anext(feed.events(page))).event == "hello"
        said = Feedback(session=SESSION, index=1, user="ann", given_at=time.time(), score=-1)
        await store.put_feedback(said)
        for page in (hers, owners):
            async with asyncio.timeout(20):
                await page.has_more.wait()
        told = hers.waiting[0]
        assert told.event == "correction"
        assert (told.session, told.correction.state) == (SESSION, "heard")
        assert LiveMachine() in owners.waiting
        assert LiveMachine() not in hers.waiting
        assert not others.waiting


async def test_a_page_that_does_not_read_is_told_that_it_is_behind(feed: Feed) -> None:
    with feed.open(ANN) as page:
        events = feed.events(page)
        assert (await anext(events)).event == "hello"
        for number in range(MAX_WAITING + 10):
            page.tell(turn("ann", number))
        assert len(page.waiting) <= MAX_WAITING
        assert (await anext(events)).event == "hello"
        page.tell(turn("ann", 7))
        told = await anext(events)
        assert isinstance(told, LiveTurn)
        assert told.turn == "s.7", "what was missed is not told late"


async def test_pages_go_and_there_are_not_too_many(feed: Feed) -> None:
    with feed.open(ANN):
        assert len(feed) == 1
    assert len(feed) == 0
    opened = [feed.open(ANN) for _ in range(MAX_PAGES)]
    for page in opened:
        page.__enter__()
    with pytest.raises(RequestError, match="too many"), feed.open(ANN):
        pass
    for page in opened:
        page.__exit__(None, None, None)
    assert len(feed) == 0


def test_nobody_hears_of_others() -> None:
    page = OpenPage(visitor=ANN)
    page.tell(turn("bob"))
    page.tell(Happened(user=None, told=LiveMachine()))
    assert not page.waiting
    page.tell(turn("ann"))
    assert len(page.waiting) == 1

"""`/v1/rollouts`: pages, waiting, and what is wrong with a question."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.shares import Shares
from openclaw_rl.gateway.api.rollouts import read_rollouts
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Feedback, Message, NextState
from tests.factories.turns import make_conversation, make_session

PATIENCE_S = 20.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        await opened.put_session(make_session())
        for turn in make_conversation(3, words=2):
            await opened.put_turn(turn)
        yield opened


async def follow(store: SqliteStore, index: int) -> None:
    said = (Message(role="user", content=f"and {index}?"),)
    await store.put_next_state(NextState(session="s-1", index=index, messages=said, arrived_at=1.0))


async def ask(store: SqliteStore, closing: asyncio.Event | None = None, user: str = "ann", **query: object) -> Any:
    asked = {name: str(value) for name, value in query.items()}
    return json.loads(await read_rollouts(store, Shares(), user, asked, closing or asyncio.Event()))


async def test_pages_lead_on_until_nothing_is_left(store: SqliteStore) -> None:
    await follow(store, 0)
    await follow(store, 1)
    await store.put_feedback(Feedback(session="s-1", index=0, user="ann", given_at=1.0, score=1))
    first = await ask(store, limit=1)
    assert (first["object"], first["has_more"]) == ("list", True)
    (turn,) = first["data"]
    assert (turn["session_id"], turn["type"], turn["id"]) == ("s-1", "main", "s-1.0")
    assert turn["next_state"] == [{"role": "user", "content": "and 0?"}]
    assert [given["score"] for given in turn["feedback"]] == [1]
    assert (turn["prompt_ids"], turn["token_ids"]) == ([0, 1], [500_000, 500_001])
    second = await ask(store, limit=9, after=first["cursor"])
    assert ([turn["id"] for turn in second["data"]], second["has_more"]) == (["s-1.1"], False)
    third = await ask(store, after=second["cursor"])
    assert (third["data"], third["cursor"]) == ([], second["cursor"])
    still_open = await ask(store, state="open")
    assert [(turn["id"], turn["next_state"]) for turn in still_open["data"]] == [("s-1.2", None)]
    assert (await ask(store, user="bob"))["data"] == []


async def test_who_waits_is_answered_when_something_settles(store: SqliteStore) -> None:
    waiting = asyncio.create_task(ask(store, wait_s=60))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await follow(store, 0)
    page = await asyncio.wait_for(waiting, PATIENCE_S)
    assert [turn["id"] for turn in page["data"]] == ["s-1.0"]
    waiting = asyncio.create_task(ask(store, wait_s=60, after=page["cursor"]))
    await asyncio.sleep(0.05)
    await store.close_session("s-1", 9.0)
    page = await asyncio.wait_for(waiting, PATIENCE_S)
    assert [turn["id"] for turn in page["data"]] == ["s-1.1", "s-1.2"]


async def test_what_settles_for_others_is_slept_through(store: SqliteStore) -> None:
    waiting = asyncio.create_task(ask(store, user="bob", wait_s=0.3))
    await asyncio.sleep(0.05)
    await follow(store, 0)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert (await asyncio.wait_for(waiting, PATIENCE_S))["data"] == []


async def test_waiting_ends_with_its_time_and_with_the_server(store: SqliteStore) -> None:
    started = time.monotonic()
    assert (await ask(store, wait_s=0.1))["data"] == []
    assert time.monotonic() - started >= 0.1
    closing = asyncio.Event()
    waiting = asyncio.create_task(ask(store, closing, wait_s=60))
    await asyncio.sleep(0.05)
    closing.set()
    assert (await asyncio.wait_for(waiting, PATIENCE_S))["data"] == []
    assert (await asyncio.wait_for(ask(store, closing, wait_s=60), PATIENCE_S))["data"] == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"wait_s": "61"}, "wait_s"),
        ({"wait_s": "nan"}, "wait_s"),
        ({"state": "all"}, "state"),
        ({"since": "1"}, "since"),
        ({"after": "x" * 3000}, "after"),
        ({"after": "x"}, "after"),
        ({"after": "x", "state": "open"}, "after"),
    ],
)
async def test_a_wrong_question_names_its_parameter(store: SqliteStore, query: dict[str, str], param: str) -> None:
    with pytest.raises(RequestError) as refused:
        await read_rollouts(store, Shares(), "ann", query, asyncio.Event())
    assert (refused.value.status, refused.value.param) == (400, param)
    assert str(refused.value).startswith(f"{param}: ")

"""Which turns are settled: each once, in order, whoever else writes, and after deletions."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.store import SqlStore
from openclaw_rl.types import Feedback, Message, NextState, Skip
from tests.factories.turns import make_conversation, make_session, make_turn
from tests.stores import open_store

REACTION = Message(role="user", content="and now?")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        yield opened


async def fill(store: SqlStore, name: str, num_turns: int = 3, user: str = "ann", **changes: object) -> None:
    """A session of which every turn but the last is followed by something."""
    await store.put_session(make_session(name, user=user, **changes))
    for turn in make_conversation(num_turns, session=name, words=2):
        await store.put_turn(turn)
    for index in range(num_turns - 1):
        await store.put_next_state(NextState(session=name, index=index, messages=(REACTION,), arrived_at=1.0))


async def read_all(store: SqlStore, user: str = "ann", after: str = "", limit: int = 2) -> tuple[list[str], str]:
    found: list[str] = []
    while True:
        names, after = await store.settled_turns(user, after, limit=limit)
        if not names:
            return found, after
        assert len(names) <= limit
        found += names


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_followed_turns_come_in_the_order_of_their_reactions_and_ended_ones_at_the_end(
    store: SqlStore, limit: int
) -> None:
    await fill(store, "s-2")
    await fill(store, "s-1")
    assert await read_all(store, limit=limit) == (["s-2.0", "s-2.1", "s-1.0", "s-1.1"], (await read_all(store))[1])
    await store.close_session("s-1", 50.0)
    await store.close_session("s-2", 60.0)
    names, cursor = await read_all(store, limit=limit)
    assert names == ["s-2.0", "s-2.1", "s-1.0", "s-1.1", "s-1.2", "s-2.2"]
    assert await read_all(store, after=cursor) == ([], cursor)


async def test_a_cursor_sees_what_came_after_it_and_nothing_else(store: SqlStore) -> None:
    await fill(store, "s-1", 2)
    _, cursor = await read_all(store)
    await fill(store, "s-0", 2)
    await store.close_session("s-1", 50.0)
    names, cursor = await read_all(store, after=cursor)
    assert names == ["s-0.0", "s-1.1"]
    await store.close_session("s-0", 50.1)
    assert (await read_all(store, after=cursor))[0] == ["s-0.1"]


@pytest.mark.parametrize("limit", [1, 100])
async def test_a_clock_that_goes_back_hides_nothing(store: SqlStore, limit: int) -> None:
    for name, closed_at in (("s-1", 50.0), ("s-2", 40.0), ("s-3", 40.0), ("s-0", 30.0)):
        await fill(store, name, 1)
        await store.close_session(name, closed_at)
    names, cursor = await read_all(store, limit=limit)
    assert names == ["s-1.0", "s-2.0", "s-3.0", "s-0.0"], "in the order in which they ended"
    await fill(store, "s-4", 2)
    await store.close_session("s-4", 10.0)
    assert (await read_all(store, after=cursor, limit=limit))[0] == ["s-4.0", "s-4.1"]


async def test_a_session_that_ends_again_is_told_again_and_numbers_are_never_given_twice(store: SqlStore) -> None:
    await fill(store, "s-1", 1)
    await store.close_session("s-1", 50.0)
    _, cursor = await read_all(store)
    await store.close_session("s-1", 60.0)
    assert await read_all(store, after=cursor) == ([], cursor), "it was over"
    await store.lessons.delete_session("s-1")
    await fill(store, "s-2", 1)
    await store.close_session("s-2", 20.0)
    names, cursor = await read_all(store, after=cursor)
    assert names == ["s-2.0"]
    await store.put_session(make_session("s-2", user="ann"))
    assert await read_all(store, after=cursor) == ([], cursor)
    await store.put_session(make_session("s-2", user="ann", closed_at=10.0))
    assert (await read_all(store, after=cursor))[0] == ["s-2.0"]


async def test_nobody_sees_the_turns_of_others_or_learns_their_names(store: SqlStore) -> None:
    await fill(store, "s-1")
    await fill(store, "secret", user="bob")
    await store.close_session("secret", 9.0)
    anns, cursor = await read_all(store, limit=100)
    assert anns == ["s-1.0", "s-1.1"]
    assert b"secret" not in base64.urlsafe_b64decode(cursor)
    assert (await read_all(store, "bob", limit=100))[0] == ["secret.0", "secret.1", "secret.2"]
    assert await read_all(store, "carol") == ([], (await read_all(store, "carol"))[1])
    assert (await store.open_turns("bob", "", limit=9))[0] == []


async def test_what_was_opted_out_is_left_out(store: SqlStore) -> None:
    await fill(store, "private", opted_out=True)
    await fill(store, "s-1")
    await store.mark_skip("s-1", 1, Skip.OPTED_OUT)
    await store.mark_skip("s-1", 0, Skip.NO_NEXT_STATE)
    assert (await read_all(store))[0] == ["s-1.0"]
    assert (await store.open_turns("ann", "", limit=9))[0] == ["s-1.2"]


async def test_open_turns_are_those_that_something_may_follow(store: SqlStore) -> None:
    await fill(store, "s-1", 2)
    await fill(store, "s-2", 2)
    await store.put_turn(make_turn(10, session="s-2", kind="side", skip=Skip.SIDE_TURN))
    first, cursor = await store.open_turns("ann", "", limit=2)
    assert (first, cursor) == (["s-1.1", "s-2.1"], "s-2.1")
    assert await store.open_turns("ann", cursor, limit=2) == (["s-2.10"], "s-2.10")
    assert await store.open_turns("ann", "s-2.10", limit=2) == ([], "s-2.10")
    await store.close_session("s-2", 9.0)
    assert (await store.open_turns("ann", "", limit=9))[0] == ["s-1.1"]


async def test_when_what_was_read_is_deleted_reading_starts_again(store: SqlStore) -> None:
    """SQLite counts from the largest number that is left, so that a number alone would pass over what comes next."""
    await fill(store, "s-1")
    await fill(store, "s-2", 2)
    _, cursor = await read_all(store)
    await store.lessons.delete_session("s-2")
    await fill(store, "s-3", 2)
    assert (await read_all(store, after=cursor))[0] == ["s-1.0", "s-1.1", "s-3.0"]


NO_CURSORS = (
    *("x", "====", "W10=", "WzEsMiwzLDRd", "bnVsbA==", "WyJhIiwiIiwwLCIiXQ=="),
    "WzE4NDQ2NzQ0MDczNzA5NTUxNjE1LCIiLDAsIiJd",  # counts further than SQLite can
)


@pytest.mark.parametrize("cursor", NO_CURSORS)
async def test_what_is_no_cursor_is_refused(store: SqlStore, cursor: str) -> None:
    with pytest.raises(ValueError, match="no cursor"):
        await store.settled_turns("ann", cursor, limit=1)
    with pytest.raises(ValueError, match="not a turn id"):
        await store.open_turns("ann", cursor, limit=1)


async def test_who_waits_is_woken_by_reactions_and_by_ends(store: SqlStore) -> None:
    await store.put_session(make_session())
    before = store.settled()
    await store.put_turn(make_turn())
    await store.put_feedback(Feedback(session="s-1", index=0, user="ann", given_at=1.0, score=1))
    assert not before.is_set()
    await store.put_next_state(NextState(session="s-1", index=0, messages=(REACTION,), arrived_at=1.0))
    await asyncio.wait_for(before.wait(), 1)
    again = store.settled()
    assert not again.is_set()
    await store.close_session("s-1", 2.0)
    assert again.is_set()


async def test_a_record_is_a_turn_and_what_was_said_after_it(store: SqlStore) -> None:
    await fill(store, "s-1", 2)
    given = Feedback(session="s-1", index=0, user="ann", given_at=1.0, score=1)
    await store.put_feedback(given)
    await store.put_feedback(Feedback(session="s-1", index=1, user="ann", given_at=2.0, score=-1))
    record = await store.record("s-1", 0)
    assert record is not None
    assert record.turn == make_conversation(2, session="s-1", words=2)[0]
    assert record.next_state is not None
    assert record.next_state.messages == (REACTION,)
    assert record.feedback == (given,)
    assert await store.record("s-1", 7) is None

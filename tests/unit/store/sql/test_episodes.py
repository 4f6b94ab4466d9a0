"""Attempts at tasks, their outcomes, and that the credit of a group is leased when the group is complete."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqlStore
from openclaw_rl.store.sql import episodes, schema
from openclaw_rl.types import SHARED_LINE, Episode, Judgement, Lease, Message, NextState, Outcome, Verdict, line_of
from tests.factories.turns import make_session, make_turn
from tests.stores import open_store, read_store

NOW = time.time() - 1000


def attempt(number: int, *, size: int = 2, group: str = "g") -> Episode:
    return Episode(
        id=f"{group}{number}", environment="shell", task="count", group=group, attempt=number, group_size=size
    )


def ended(number: int, reward: float = 0.5, group: str = "g") -> Outcome:
    return Outcome(episode=f"{group}{number}", reward=reward, ended_at=NOW)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        yield opened


async def play(store: SqlStore, episode: Episode | None, session: str, *, num_turns: int = 2) -> None:
    """A session of an episode, with every turn followed by something."""
    await store.put_session(replace(make_session(), id=session, key=session, episode=episode))
    for index in range(num_turns):
        await store.put_turn(make_turn(index, session=session))
        said = (Message(role="user", content="go on"),)
        await store.put_next_state(NextState(session=session, index=index, arrived_at=NOW, messages=said))


async def judge_all(store: SqlStore) -> None:
    for held in await store.lessons.lease("judge", limit=100, ttl_s=60.0):
        await store.lessons.put_judgement(held, judged(held))


def judged(held: Lease) -> Judgement:
    return Judgement(
        session=held.session,
        index=held.index,
        num_evidence=held.num_evidence,
        judge="rules",
        prompt_version="",
        judged_at=NOW,
        verdict=Verdict(outcome="scored", score=1),
    )


async def credit(store: SqlStore, *, limit: int = 100) -> list[str]:
    return sorted(held.turn_id for held in await store.lessons.lease("credit", limit=limit, ttl_s=60.0))


async def test_an_episode_and_its_outcome_are_put_once(store: SqlStore) -> None:
    assert await store.lessons.put_episode(attempt(0))
    assert not await store.lessons.put_episode(attempt(0)), "the same again is no other"
    assert await store.lessons.episode("g0") == (attempt(0), None)
    assert await store.lessons.put_outcome(ended(0, 0.37))
    assert not await store.lessons.put_outcome(ended(0, -1.0)), "the first outcome stays"
    assert await store.lessons.episode("g0") == (attempt(0), ended(0, 0.37))
    assert await store.lessons.episode("g1") is None
    with pytest.raises(StoreError, match="another attempt"):
        await store.lessons.put_episode(replace(attempt(0), attempt=1))
    with pytest.raises(StoreError, match="no episode g1"):
        await store.lessons.put_outcome(ended(1))


async def test_a_group_tells_its_attempts_their_outcomes_and_their_sessions(store: SqlStore) -> None:
    await play(store, attempt(1), "b")
    await play(store, attempt(0), "a")
    await play(store, attempt(0, group="other"), "c")
    failed = Outcome(episode="g1", failure="the box died", ended_at=NOW)
    await store.lessons.put_outcome(failed)
    assert await store.lessons.group("g") == [(attempt(0), None, ["a"]), (attempt(1), failed, ["b"])]
    assert await store.lessons.group("unknown") == []
    (held, *_) = await store.lessons.lease("judge", limit=1, ttl_s=1.0)
    session, _ = await store.lessons.followed_turn(held.session, held.index) or (None, None)
    assert session is not None
    assert session.episode == attempt(1)
    assert {one.session.episode for one in await store.load_open()} == {
        attempt(0),
        attempt(1),
        attempt(0, group="other"),
    }


async def test_credit_waits_until_the_group_is_complete_and_is_leased_whole(store: SqlStore) -> None:
    await play(store, attempt(0), "a")
    await play(store, None, "alone")
    await judge_all(store)
    assert await credit(store) == ["alone.0", "alone.1"], "who belongs to no episode waits for nobody"

    await store.lessons.put_outcome(ended(0))
    await store.close_session("a", NOW)
    assert await credit(store) == [], "one of two attempts has an outcome"
    await play(store, attempt(1), "b")
    await store.lessons.put_outcome(ended(1))
    assert await credit(store) == [], "a session of the second is open"
    await store.close_session("b", NOW)
    assert await credit(store) == [], "it is not judged"
    store.lessons.woken("credit").clear()
    await judge_all(store)
    assert store.lessons.woken("credit").is_set()
    assert await credit(store, limit=1) == ["a.0", "a.1", "b.0", "b.1"], "all together, whatever the limit"


async def test_a_group_is_not_leased_in_parts(store: SqlStore) -> None:
    for number, session in enumerate("ab"):
        await play(store, attempt(number), session, num_turns=1)
        await store.lessons.put_outcome(ended(number))
        await store.close_session(session, NOW)
    await judge_all(store)
    first, second = await store.lessons.lease("credit", limit=1, ttl_s=60.0)
    await store.lessons.give_back(first, due_at=0.0)
    assert await credit(store) == [], "the other one is still held"
    await store.lessons.give_back(second, due_at=0.0)
    assert await credit(store) == ["a.0", "b.0"]


async def test_an_outcome_wakes_credit(store: SqlStore) -> None:
    await play(store, attempt(0, size=1), "a")
    await store.close_session("a", NOW)
    await judge_all(store)
    assert await credit(store) == []
    store.lessons.woken("credit").clear()
    await store.lessons.put_outcome(Outcome(episode="g0", failure="the box died", ended_at=NOW))
    assert store.lessons.woken("credit").is_set()
    assert await credit(store) == ["a.0", "a.1"]


async def test_the_database_names_the_line_of_a_session_as_line_of_does(store: SqlStore, tmp_path: Path) -> None:
    of_users = [None, attempt(0), replace(attempt(1), environment="shell.2")]
    for number, (user, episode) in enumerate((user, episode) for user in ("ann", "shell") for episode in of_users):
        named = f"s-{number}"
        await store.put_session(replace(make_session(), id=named, key=named, user=user, episode=episode))
    summaries = read_store(tmp_path).sessions()
    taught = {one.session.id: line_of(one.session) for one in summaries}
    assert len(taught) == 6

    def of_line(line: str) -> set[str]:
        def query(connection: Connection) -> set[str]:
            return set(connection.scalars(select(schema.session.c.id).where(episodes.of_line(line))))

        return read_store(tmp_path)._ask(query)

    for line in (*taught.values(), "bob", "env:ann", SHARED_LINE):
        assert of_line(line) == {session for session, theirs in taught.items() if theirs == line}

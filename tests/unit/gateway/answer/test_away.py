"""Only so many turns of open sessions are in memory; where requests land does not depend on how many."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.gateway.access.retention import let_go
from openclaw_rl.gateway.answer.exchange import Background, Gateway
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.api.feedback import end_named
from openclaw_rl.gateway.sessions.identify import Identity
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Message, Request, Sampling, Skip, Turn

TIMEOUT_S = 1000.0


@dataclass
class House:
    """A gateway over a store of its own, whose clock goes on by itself."""

    gateway: Gateway
    store: SqliteStore
    ahead: list[float] = field(default_factory=lambda: [0.0])

    @classmethod
    async def open(cls, folder: Path, model: Path, renderer: Renderer, max_turns: int) -> House:
        store, numbers, ahead = await SqliteStore.open(folder), itertools.count(1), [0.0]
        sessions = Sessions(
            timeout_s=TIMEOUT_S,
            new_id=lambda: f"s{next(numbers)}",
            max_turns=max_turns,
            clock=lambda: time.time() + ahead[0],
        )
        gateway = Gateway(
            engine=ScriptedEngine(model, ScriptedOptions(tokens_per_s=0)),
            renderer=renderer,
            store=store,
            sessions=sessions,
            memory=TokenMemory(store.get_turn, model_id="tiny#1", max_turns=max_turns),
            background=Background(),
            model_id="tiny#1",
        )
        return cls(gateway, store, ahead)

    async def ask(
        self,
        *messages: Message,
        user: str = "local",
        key: str | None = None,
        is_retry: bool = False,
        delivers: bool = True,
        private: bool = False,
    ) -> Turn:
        """One exchange, two seconds after the one before; its turn as it is on disk."""
        self.ahead[0] += 2.0
        identity = Identity(
            client="test",
            session_key=key,
            kind="main",
            is_retry=is_retry,
            no_train="session" if private else None,
        )
        request = Request(messages=messages, sampling=Sampling(max_tokens=1000))
        exchange = await self.gateway.begin(request, identity, user=user, digest=repr(messages), dialect="chat")
        async with aclosing(exchange.pieces()) as pieces:
            async for _ in pieces:
                pass
        await exchange.commit()
        if delivers:
            await exchange.delivered()
            # Its mark waits for company on its way to the disk; the next write takes it along.
            (name,) = exchange.turn_ids
            await self.store.mark_skip(*split(name), Skip.SIDE_TURN)
        turn = await self.store.get_turn(*split(exchange.turn_ids[0]))
        assert turn is not None
        return turn

    async def all_told(self) -> list[str]:
        """What was told of all turns together."""
        names, _ = await self.store.settled_turns("local", "", limit=1000)
        more, _ = await self.store.settled_turns("ann", "", limit=1000)
        records = [await self.store.record(*split(name)) for name in (*names, *more)]
        return sorted(repr(one.next_state.messages) for one in records if one is not None and one.next_state)

    async def parent_of(self, turn: Turn) -> tuple[Message, ...] | None:
        """What the turn goes on from. An answer that was given twice is one: which of the two is told by the system
        prompt, and that is known of turns in memory alone."""
        parent = None if turn.parent is None else await self.store.get_turn(turn.session, turn.parent)
        return None if parent is None else (*parent.messages, parent.message)

    @property
    def num_here(self) -> int:
        """Sessions in memory."""
        return sum(map(self.gateway.sessions.holds, map("s{}".format, range(1, 300))))


def split(name: str) -> tuple[str, int]:
    session, _, index = name.rpartition(".")
    return session, int(index)


def says(text: str) -> Message:
    return Message(role="user", content=text)


@pytest.fixture
async def houses(tmp_path: Path, model: Path, renderer: Renderer) -> AsyncIterator[tuple[House, House]]:
    """One that remembers hardly anything, and one that remembers everything."""
    async with AsyncExitStack() as cleanup:
        both = [await House.open(tmp_path / str(max_turns), model, renderer, max_turns) for max_turns in (1, 1_000_000)]
        for house in both:
            cleanup.push_async_callback(house.store.close)
        yield both[0], both[1]


@pytest.mark.parametrize("seed", range(2))
async def test_requests_land_where_they_would_if_everything_were_in_memory(
    houses: tuple[House, House], seed: int
) -> None:
    draw = random.Random(seed)
    talks: list[tuple[str, str | None, list[Message]]] = []
    landed = []
    for number in range(50):
        die = draw.random()
        if die < 0.35 or not talks:
            name = f"n{number}" if die < 0.1 else None
            talks.append((draw.choice(["local", "ann"]), name, [says(f"tell me something of number {number}")]))
            user, key, talk = talks[-1]
        else:
            user, key, talk = draw.choice(talks)
            if die < 0.75 and talk[-1].role == "assistant":
                talk.append(says(f"and what of {number}?"))
            elif die < 0.85 and len(talk) > 2:  # edited further up
                talk = [*talk[:2], says(f"or rather of {number}?")]
                talks.append((user, key, talk))
            elif talk[-1].role == "assistant":  # asked again
                talk.pop()
        if draw.random() < 0.3:
            key = None  # the words alone must do
        retry = draw.random() < 0.2
        turns = [await house.ask(*talk, user=user, key=key, is_retry=retry, delivers=die < 0.9) for house in houses]
        assert [turn.id for turn in turns] == [turns[0].id] * 2, f"request {number}"
        parents = [await house.parent_of(turn) for house, turn in zip(houses, turns, strict=True)]
        assert parents[0] == parents[1]
        assert turns[0].prompt_ids == turns[1].prompt_ids
        landed.append(turns[0])
        talk.append(turns[0].message)
    tight, roomy = houses
    assert tight.num_here <= 2 < roomy.num_here
    assert any(turn.parent is not None for turn in landed)
    assert len(tight.gateway.sessions) == len(roomy.gateway.sessions)
    told = [await house.all_told() for house in houses]
    assert told[0] == told[1]
    for turn in landed:
        here, there = [await house.store.record(turn.session, turn.index) for house in houses]
        assert here is not None
        assert there is not None
        assert here.turn.message == there.turn.message


async def test_what_is_away_ends_by_its_name_and_by_its_time(houses: tuple[House, House]) -> None:
    house, _ = houses
    named = await house.ask(says("one"), key="diary", user="ann")
    unnamed = await house.ask(says("two"))
    last = await house.ask(says("three"))
    sessions = house.gateway.sessions
    assert (sessions.holds(named.session), sessions.is_open(named.session)) == (False, True)
    assert b'"ended":true' in await end_named(house.gateway, "ann", "diary")
    assert not sessions.is_open(named.session)
    closed = await house.store.outline(named.session)
    assert closed is not None
    assert closed.session.closed_at is not None
    house.ahead[0] += TIMEOUT_S + 5
    assert sessions.seconds_to_next_expiry() == 0
    await house.gateway.end_overdue()
    assert (len(sessions), sessions.overdue(limit=9)) == (0, [])
    for turn in (unnamed, last):
        ended = await house.store.outline(turn.session)
        assert ended is not None
        assert ended.session.closed_at is not None


async def test_what_is_away_can_be_deleted_and_privacy_goes_on(houses: tuple[House, House]) -> None:
    house, _ = houses
    secret = await house.ask(says("between us, tell me a long story"), private=True)
    gone = await house.ask(says("to be forgotten"))
    await house.ask(says("something else"))
    sessions = house.gateway.sessions
    assert not sessions.holds(secret.session)
    assert not sessions.holds(gone.session)
    with let_go(house.gateway, [gone.session]):
        await house.store.lessons.delete_session(gone.session)
    assert not sessions.is_open(gone.session)
    again = await house.ask(says("to be forgotten"), gone.message, says("do you know?"))
    assert again.session not in (gone.session, secret.session)
    elsewhere = await house.ask(says("between us, tell me a long story"), secret.message, says("go on"), key="other")
    assert elsewhere.session != secret.session
    assert elsewhere.skip is Skip.OPTED_OUT

"""Old sessions are deleted, with a clock that a test turns, down to the bytes of the files."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.gateway.access.retention import AGAIN_S, DAY_S, Retention, StillAnswering, let_go
from openclaw_rl.gateway.answer.exchange import Background, Gateway
from openclaw_rl.gateway.answer.memory import TokenMemory, TurnTokens
from openclaw_rl.gateway.sessions.identify import Identity
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import LearningStore, Renderer
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.sql.schema import metadata
from openclaw_rl.types import (
    Credit,
    Feedback,
    Judgement,
    Message,
    NextState,
    Request,
    Sample,
    Sampling,
    Turn,
    Verdict,
    Vote,
    sample_id,
)
from tests.factories.turns import make_session, make_turn

DAYS = 30.0


@dataclass
class Clock:
    now: float = 1000 * DAY_S

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as store:
        yield store


class Cache(ScriptedEngine):
    """Notes what it is to forget."""

    def __init__(self, model: Path) -> None:
        super().__init__(model, ScriptedOptions(tokens_per_s=0))
        self.forgotten: list[Collection[str]] = []

    async def forget_cache(self, salts: Collection[str]) -> None:
        self.forgotten.append(salts)


@pytest.fixture
def gateway(store: SqliteStore, model: Path, renderer: Renderer, clock: Clock) -> Gateway:
    return Gateway(
        engine=Cache(model),
        renderer=renderer,
        store=store,
        sessions=Sessions(timeout_s=3600, new_id=lambda: "new", clock=clock),
        memory=TokenMemory(store.get_turn, model_id="tiny#1"),
        background=Background(),
        model_id="tiny#1",
    )


@pytest.fixture
def retention(gateway: Gateway, store: SqliteStore, clock: Clock) -> Retention:
    return Retention(gateway, store.lessons, store.erase, days=DAYS, clock=clock)


async def remember(store: SqliteStore, name: str, words: str, seen_at: float, *, closed: bool = True) -> None:
    """A session with something in every table that knows sessions."""
    lessons = store.lessons
    await store.put_session(make_session(name, opened_at=seen_at, last_seen_at=seen_at, key=name))
    first = make_turn(
        session=name, text=f"{words} answer", messages=(Message(role="user", content=f"{words} question"),)
    )
    asked = (*first.messages, first.message, Message(role="user", content=f"{words} more"))
    prompt_ids = first.prompt_ids + first.completion.token_ids + (7,)
    second = make_turn(1, session=name, parent=0, messages=asked, prompt_ids=prompt_ids, text=f"{words} again")
    await store.put_turn(first)
    await store.put_turn(second)
    await store.put_next_state(NextState(session=name, index=0, messages=asked[-1:], arrived_at=seen_at))
    await store.put_feedback(Feedback(session=name, index=1, user="ann", given_at=seen_at, text=f"{words} bad"))
    for held in await lessons.lease("judge", limit=9, ttl_s=60):
        votes = (Vote(question="score", score=-1, raw=f"{words} vote"),)
        verdict = Verdict(outcome="scored", score=-1, votes=votes, hints=(f"{words} hint",))
        await lessons.put_judgement(
            held,
            Judgement(
                session=held.session,
                index=held.index,
                num_evidence=held.num_evidence,
                judge="rules",
                prompt_version="1",
                judged_at=seen_at,
                verdict=verdict,
            ),
        )
    for held in await lessons.lease("credit", limit=9, ttl_s=60):
        turn = (first, second)[held.index]
        credit = Credit(
            session=held.session,
            index=held.index,
            num_evidence=held.num_evidence,
            rule="binary",
            credited_at=seen_at,
            reward=-1.0,
            samples=(sample_of(turn),),
        )
        await lessons.put_credit(held, credit)
    if closed:
        await store.close_session(name, seen_at)


def sample_of(turn: Turn) -> Sample:
    size = len(turn.completion.token_ids)
    return Sample(
        id=sample_id(turn.session, turn.index, "turn"),
        line="ann",
        kind="turn",
        session=turn.session,
        index=turn.index,
        prompt_index=turn.index,
        created_at=1.0,
        prompt_ids=turn.prompt_ids,
        response_ids=turn.completion.token_ids,
        loss_mask=(True,) * size,
        advantages=(-1.0,) * size,
        logprobs=turn.completion.logprobs,
        temperature=0.7,
        on_policy=True,
        reward=-1.0,
        w_rl=1.0,
        w_opd=0.0,
        candidates=(),
        version_spans=turn.completion.version_spans,
    )


def rows(path: Path, session: str) -> dict[str, int]:
    """How many rows of a session every table has."""
    with sqlite3.connect(f"file:{path / 'store.sqlite3'}?mode=ro", uri=True) as connection:
        counts = {}
        for table in metadata.tables.values():
            column = "id" if table.name == "session" else "session"
            if column in table.c and table.name != "api_key":
                query = f'SELECT count(*) FROM "{table.name}" WHERE "{column}" = ?'
                (counts[table.name],) = connection.execute(query, (session,)).fetchone()
    connection.close()
    return counts


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.iterdir() if file.is_file())


async def test_every_table_loses_the_session_and_the_files_its_words(
    retention: Retention, store: SqliteStore, clock: Clock, tmp_path: Path
) -> None:
    rng = random.Random(4)
    words = {f"s-{i}": f"word{rng.randrange(10**12)} " + "x" * rng.randrange(1, 9000) for i in range(24)}
    for number, (name, said) in enumerate(words.items()):
        await remember(store, name, said, clock() - (DAYS + 1 if number % 2 else 1) * DAY_S)
    assert all(rows(tmp_path, "s-1").values()), rows(tmp_path, "s-1")
    assert len(rows(tmp_path, "s-1")) == 9
    assert await retention.sweep() == 12
    data = on_disk(tmp_path)
    for number, (name, said) in enumerate(words.items()):
        marker = said.split()[0].encode()
        assert (marker in data) is (number % 2 == 0), name
        assert any(rows(tmp_path, name).values()) is (number % 2 == 0)
    assert await retention.sweep() == 0
    clock.now += DAYS * DAY_S
    assert await retention.sweep() == 12
    data = on_disk(tmp_path)
    assert not [name for name, said in words.items() if said.split()[0].encode() in data]


async def test_rows_that_had_moved_leave_no_copies(store: SqliteStore, tmp_path: Path) -> None:
    """Sessions that come and go balance the trees again and again: overwriting what is deleted left one readable."""
    rng = random.Random(6)
    living: dict[str, str] = {}
    gone: list[str] = []
    for number in range(150):
        if living and rng.random() >= 0.6:
            name = rng.choice(list(living))
            gone.append(living.pop(name))
            await store.lessons.delete_session(name)
            continue
        name, mark = f"s-{number}", f"MARK{rng.randrange(10**14)}"
        living[name] = mark
        await store.put_session(make_session(name, key=name))
        for index in range(rng.randrange(1, 5)):
            text, asked = mark + "y" * rng.choice((5, 50, 300, 900, 3000, 8000)), mark + "z" * rng.choice((3, 40, 400))
            said = mark + "w" * rng.choice((3, 400, 2000))
            await store.put_turn(
                make_turn(index, session=name, text=text, messages=(Message(role="user", content=asked),))
            )
            await store.put_feedback(Feedback(session=name, index=index, user="ann", given_at=float(number), text=said))
    assert await store.erase()
    data = on_disk(tmp_path)
    assert len(gone) > 30
    assert [mark for mark in gone if mark.encode() in data] == []
    assert all(mark.encode() in data for mark in living.values())


async def test_open_sessions_end_first(
    retention: Retention, gateway: Gateway, store: SqliteStore, clock: Clock, tmp_path: Path
) -> None:
    await remember(store, "s-1", "still open", clock() - (DAYS + 1) * DAY_S, closed=False)
    await remember(store, "s-2", "also open", clock(), closed=False)
    for outline in await store.load_open():
        gateway.sessions.restore(outline)
    assert await retention.sweep() == 1
    assert not any(rows(tmp_path, "s-1").values())
    assert gateway.sessions.is_open("s-2")


async def test_a_session_that_somebody_came_back_to_stays(
    retention: Retention, gateway: Gateway, store: SqliteStore, clock: Clock, tmp_path: Path
) -> None:
    await remember(store, "s-1", "old", clock() - (DAYS + 1) * DAY_S)
    asked = Request(messages=(Message(role="user", content="back again"),), sampling=Sampling(max_tokens=20))
    identity = Identity(client="test", session_key="s-1", kind="main")
    exchange = await gateway.begin(asked, identity, user="ann", digest="d", dialect="chat")
    assert exchange.turn_ids == ("s-1.2",)
    assert await retention.sweep() == 0
    assert rows(tmp_path, "s-1")["turn"] == 2
    exchange.give_up()


async def test_the_name_of_a_deleted_session_can_be_used_again(
    retention: Retention, gateway: Gateway, store: SqliteStore, clock: Clock, tmp_path: Path
) -> None:
    old = clock() - (DAYS + 1) * DAY_S
    await remember(store, "s-1", "old", old)
    sweeping = asyncio.create_task(retention.sweep())
    while "s-1" not in gateway.leaving:  # noqa: ASYNC110 (a set has no event to wait for)
        await asyncio.sleep(0)
    asked = Request(messages=(Message(role="user", content="anew"),), sampling=Sampling(max_tokens=20))
    identity = Identity(client="test", session_key="s-1", kind="main")
    exchange = await gateway.begin(asked, identity, user="ann", digest="d", dialect="chat")
    async for _ in exchange.pieces():
        pass
    await exchange.commit()
    assert await sweeping == 1
    assert not any(rows(tmp_path, "s-1").values())
    (turn,) = StoreReader.open(tmp_path).turns(session_of(exchange.turn_ids[0]))
    assert turn.messages[0].content == "anew"


async def test_a_session_that_is_being_deleted_is_not_taken_up_again(
    gateway: Gateway, store: SqliteStore, clock: Clock
) -> None:
    """It was looked up before it was deleted, and found: what was found is as good as gone."""
    await remember(store, "s-1", "old", clock() - (DAYS + 1) * DAY_S)
    gateway.leaving.add("s-1")
    asked = Request(messages=(Message(role="user", content="anew"),), sampling=Sampling(max_tokens=20))
    identity = Identity(client="test", session_key="s-1", kind="main")
    exchange = await gateway.begin(asked, identity, user="ann", digest="d", dialect="chat")
    assert exchange.turn_ids == ("ann/s-1.0",)
    exchange.give_up()


async def test_a_session_that_is_being_answered_cannot_go_and_ends_with_the_answer(
    gateway: Gateway, store: SqliteStore, clock: Clock
) -> None:
    await remember(store, "s-1", "new", clock(), closed=False)
    asked = Request(messages=(Message(role="user", content="and on"),), sampling=Sampling(max_tokens=20))
    identity = Identity(client="test", session_key="s-1", kind="main")
    exchange = await gateway.begin(asked, identity, user="ann", digest="d", dialect="chat")
    with pytest.raises(StillAnswering, match="s-1 is being answered"), let_go(gateway, ["s-1"]):
        raise AssertionError("it must not go")
    assert (gateway.leaving, gateway.sessions.is_open("s-1")) == (set(), True)
    async for _ in exchange.pieces():
        pass
    await exchange.commit()
    await exchange.delivered()
    assert not gateway.sessions.is_open("s-1")
    gateway.memory.put("s-1.7", TurnTokens([1], [2], 0, b""))
    with let_go(gateway, ["s-1"]):
        assert gateway.leaving == {"s-1"}
    assert (gateway.leaving, await gateway.memory.get("s-1", 7)) == (set(), None)


def session_of(turn_id: str) -> str:
    return turn_id.rpartition(".")[0]


async def test_what_leaned_on_a_deleted_session_is_forgotten(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    first = make_turn()
    child = make_turn(1, parent=0, prompt_ids=first.prompt_ids + first.completion.token_ids + (7,))
    await store.put_session(make_session())
    await store.put_turn(first)
    await store.lessons.delete_session(first.session)
    await store.put_session(make_session())
    await store.put_turn(make_turn(token_ids=(), finish_reason="abort"))
    await store.put_turn(child)
    assert await store.get_turn(first.session, 1) == child


async def test_a_reader_delays_the_emptying_only(
    gateway: Gateway, store: SqliteStore, clock: Clock, tmp_path: Path
) -> None:
    await remember(store, "s-1", "oldwords", clock() - (DAYS + 1) * DAY_S)
    slept: list[float] = []
    done = asyncio.Event()
    reading = sqlite3.connect(f"file:{tmp_path / 'store.sqlite3'}?mode=ro", uri=True, isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM session").fetchone()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            done.set()
            await asyncio.Event().wait()
        reading.execute("COMMIT")
        reading.close()

    retention = Retention(gateway, store.lessons, store.erase, days=DAYS, clock=clock, sleep=sleep)
    running = asyncio.create_task(retention.run())
    await done.wait()
    running.cancel()
    assert slept == [AGAIN_S, DAY_S]
    assert b"oldwords" not in on_disk(tmp_path)


async def test_a_disk_that_fails_delays_it_only(gateway: Gateway, clock: Clock) -> None:
    class Failing:
        num_asked = 0

        async def sessions_older_than(self, last_seen_at: float, *, limit: int = 100) -> list[str]:
            self.num_asked += 1
            if self.num_asked == 1:
                raise StoreUnavailable("no space")
            return []

        async def delete_session(self, session: str) -> None:
            raise AssertionError(session)

    async def erase() -> bool:
        raise AssertionError("nothing was deleted")

    slept: list[float] = []
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            done.set()
            await asyncio.Event().wait()

    retention = Retention(gateway, cast("LearningStore", Failing()), erase, days=DAYS, clock=clock, sleep=sleep)
    running = asyncio.create_task(retention.run())
    await done.wait()
    running.cancel()
    assert slept == [AGAIN_S, DAY_S]


async def test_the_engines_cache_forgets_what_is_deleted(
    gateway: Gateway, retention: Retention, store: SqliteStore, clock: Clock
) -> None:
    await remember(store, "s-old", "old", clock() - 31 * DAY_S)
    await remember(store, "s-new", "new", clock())
    known = await store.lessons.get_session("s-old")
    assert known is not None
    assert await retention.sweep() == 1
    assert isinstance(gateway.engine, Cache)
    assert gateway.engine.forgotten == [gateway.salts.touched_by(known)]

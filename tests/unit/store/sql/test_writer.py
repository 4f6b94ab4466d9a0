"""The rules of writing: what replaces what, in which order, and what one bad record does to the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.store import SqlStore
from openclaw_rl.store.sql.reader import SqlReader
from openclaw_rl.store.sqlite.connection import connect_reader
from openclaw_rl.types import ApiKey, Feedback, Message, NextState, Session, Skip, Tool, Turn, TurnOutline
from tests.factories.turns import SESSION, make_conversation, make_session, make_turn
from tests.stores import open_store, read_store, sqlite_only


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        await opened.put_session(make_session())
        yield opened


@pytest.fixture
def reader(tmp_path: Path, store: SqlStore) -> SqlReader:
    return read_store(tmp_path)


ABORTED = make_turn(text="fi", token_ids=(19556,), finish_reason="abort", skip=Skip.ABORTED)
COMPLETE = make_turn()


@pytest.mark.parametrize(
    ("puts", "stays"),
    [
        ([ABORTED, COMPLETE], COMPLETE),
        ([COMPLETE, ABORTED], COMPLETE),
        ([COMPLETE, COMPLETE], COMPLETE),
        ([ABORTED, make_turn(finish_reason="error", token_ids=())], make_turn(finish_reason="error", token_ids=())),
    ],
)
@pytest.mark.parametrize("together", [True, False])
async def test_which_attempt_at_a_turn_stays(
    store: SqlStore, reader: SqlReader, puts: list[Turn], stays: Turn, together: bool
) -> None:
    if together:
        await asyncio.gather(*map(store.put_turn, puts))
    else:
        for turn in puts:
            await store.put_turn(turn)
    assert reader.turns(SESSION) == [stays]


async def test_a_second_complete_answer_is_refused_and_harms_nobody(store: SqlStore, reader: SqlReader) -> None:
    await store.put_turn(COMPLETE)
    other, neighbour = make_turn(text="other", token_ids=(1, 2)), make_turn(1)
    results = await asyncio.gather(*map(store.put_turn, (other, neighbour)), return_exceptions=True)
    assert isinstance(results[0], StoreError)
    assert "already stored and complete" in str(results[0])
    assert results[1] is None
    assert reader.turns(SESSION) == [COMPLETE, neighbour]


async def test_marks(store: SqlStore, reader: SqlReader) -> None:
    for index in range(3):
        store.put_turn(make_turn(index))
    store.mark_delivered(SESSION, 1)
    store.mark_skip(SESSION, 0, Skip.NO_NEXT_STATE)
    store.mark_skip(SESSION, 0, Skip.OPTED_OUT)
    await store.mark_delivered(SESSION, 7)
    turns = reader.turns(SESSION)
    assert [turn.delivered for turn in turns] == [False, True, False]
    assert [turn.skip for turn in turns] == [Skip.NO_NEXT_STATE, None, None]


async def test_records_take_effect_in_the_order_they_were_put(store: SqlStore, reader: SqlReader) -> None:
    """All in one batch: the mark belongs to the aborted attempt, not to the turn that replaced it."""
    store.put_turn(ABORTED)
    store.mark_delivered(SESSION, 0)
    store.put_turn(COMPLETE)
    store.close_session(SESSION, 200.0)
    store.put_session(make_session(last_seen_at=300.0))
    await store.close_session(SESSION, 400.0)
    assert reader.turns(SESSION) == [COMPLETE]
    assert reader.session(SESSION) == make_session(last_seen_at=300.0, closed_at=400.0)


async def test_the_first_closing_counts(store: SqlStore, reader: SqlReader) -> None:
    store.close_session(SESSION, 200.0)
    await store.close_session(SESSION, 300.0)
    assert reader.session(SESSION) == make_session(closed_at=200.0)


async def test_the_first_next_state_stays(store: SqlStore, reader: SqlReader) -> None:
    states = [
        NextState(session=SESSION, index=0, messages=(Message(role="user", content=text),), arrived_at=150.0)
        for text in ("thanks", "again")
    ]
    await asyncio.gather(store.put_turn(COMPLETE), *map(store.put_next_state, states))
    assert reader.next_states(SESSION) == states[:1]


async def test_the_same_feedback_twice_is_one(store: SqlStore, reader: SqlReader) -> None:
    said = Feedback(session=SESSION, index=0, user="ann", given_at=150.0, score=1)
    later = replace(said, given_at=151.0)
    await asyncio.gather(store.put_turn(COMPLETE), *map(store.put_feedback, (said, said, later)))
    assert reader.feedback(SESSION) == [said, later]


async def test_keys_are_never_replaced(store: SqlStore, reader: SqlReader) -> None:
    key = ApiKey(id="k1", user="ann", digest=b"\1" * 32, created_at=1.0, label="laptop")
    await store.put_key(key)
    for taken in (replace(key, digest=b"\2" * 32), replace(key, id="k2")):
        with pytest.raises(StoreError):
            await store.put_key(taken)
    store.revoke_key("k1", 9.0)
    await store.revoke_key("k1", 10.0)
    assert await store.keys() == reader.keys() == [replace(key, revoked_at=9.0)]


async def test_a_name_belongs_to_one_session_of_a_user(store: SqlStore) -> None:
    named = make_session("s-2", key="chat")
    await asyncio.gather(store.put_session(named), store.put_session(make_session("s-3", key="chat", user="bob")))
    with pytest.raises(StoreError, match="(?i)unique"):
        await store.put_session(make_session("s-4", key="chat"))
    for name in ("chat", "s-2"):
        found = await store.find_session("ann", name)
        assert found is not None
        assert found.session == named
    assert await store.find_session("ann", "other") is None
    assert await store.find_session("ann", "s-3") is None


@pytest.mark.parametrize(
    "bad",
    [
        make_turn(0, session="unknown"),
        make_turn(0, token_ids=(2**31,)),
        make_turn(0, text="lone \ud800 surrogate"),
        make_turn(0, model="lone \ud800 surrogate"),
        make_turn(2**63),
    ],
    ids=["no session", "id too large", "surrogate in json", "surrogate in text", "index too large"],
)
async def test_a_bad_record_fails_alone(store: SqlStore, reader: SqlReader, bad: Turn) -> None:
    good = [make_turn(1), make_turn(2)]
    results = await asyncio.gather(*map(store.put_turn, (good[0], bad, good[1])), return_exceptions=True)
    assert isinstance(results[1], StoreError)
    assert not isinstance(results[1], StoreUnavailable)
    assert reader.turns(SESSION) == good


async def test_errors_do_not_repeat_the_conversation(store: SqlStore) -> None:
    with pytest.raises(StoreError) as raised:
        await store.put_turn(make_turn(0, session="unknown", text="a secret"))
    assert "secret" not in str(raised.value)


async def test_records_that_wait_are_committed_together(store: SqlStore, reader: SqlReader) -> None:
    before = store.commits
    await asyncio.gather(*[store.put_turn(make_turn(index)) for index in range(200)])
    assert store.commits == before + 1
    assert len(reader.turns(SESSION)) == 200


async def test_a_commit_gathers_what_comes_while_the_one_before_is_written(store: SqlStore) -> None:
    """Three clients that each wait for their turn share commits: far fewer than one each."""

    async def client(name: str) -> None:
        await store.put_session(make_session(name))
        for index in range(20):
            await store.put_turn(make_turn(index, session=name))

    before = store.commits
    await asyncio.gather(*(client(f"c-{number}") for number in range(10)))
    assert store.commits - before <= 2 * 21


async def test_a_window_makes_a_commit_wait_for_company(tmp_path: Path) -> None:
    async with await open_store(tmp_path, commit_window_s=0.05) as store:
        first = store.put_session(make_session("a"))
        await asyncio.sleep(0)
        await asyncio.gather(first, store.put_session(make_session("b")))
        assert store.commits == 1


async def test_a_cancelled_caller_leaves_its_record_and_its_neighbours_alone(
    store: SqlStore, reader: SqlReader
) -> None:
    async def put(index: int) -> None:
        await store.put_turn(make_turn(index))

    tasks = [asyncio.create_task(put(index)) for index in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
    await store.put_turn(make_turn(3))
    assert [turn.index for turn in reader.turns(SESSION)] == [0, 1, 2, 3]


async def test_closing_writes_what_is_queued(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    puts = [store.put_session(make_session()), *(store.put_turn(make_turn(index)) for index in range(600))]
    await store.close()
    assert all(put.done() and put.exception() is None for put in puts)
    assert len(read_store(tmp_path).turns(SESSION)) == 600
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.put_turn(make_turn(601))
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.keys()
    await store.close()


async def test_a_disk_that_is_far_behind_refuses_new_records(tmp_path: Path) -> None:
    async with await open_store(tmp_path, max_queued_bytes=4000) as store:
        await store.put_session(make_session())
        puts = [store.put_turn(make_turn(index)) for index in range(10)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        refused = [isinstance(result, StoreUnavailable) for result in results]
        assert refused == sorted(refused)
        assert 0 < sum(refused) < 10
        await store.put_turn(make_turn(10))
    assert len(read_store(tmp_path).turns(SESSION)) == 11 - sum(refused)


async def test_forgotten_failures_are_quiet(store: SqlStore, caplog: pytest.LogCaptureFixture) -> None:
    """Warnings are errors here, and asyncio would log a future whose exception nobody saw."""
    store.put_turn(make_turn(0, token_ids=(2**40,)))
    store.put_turn(make_turn(0, session="unknown"))
    await store.put_turn(make_turn(0))
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    assert not caplog.records


async def test_what_the_gateway_takes_up_again(store: SqlStore) -> None:
    first, second = make_conversation(2)
    second = replace(second, tools=(Tool(name="run", description="", parameters={}),))
    side = make_turn(2, kind="side", skip=Skip.SIDE_TURN)
    old = make_session("s-old", last_seen_at=50.0)
    empty = make_session("s-empty", last_seen_at=60.0)
    state = NextState(session=SESSION, index=0, messages=first.messages, arrived_at=160.0)
    await asyncio.gather(
        *map(store.put_session, (old, empty)),
        *map(store.put_turn, (first, second, side, make_turn(0, session="s-old"))),
        store.put_next_state(state),
        store.mark_delivered(SESSION, 0),
    )
    await store.close_session("s-old", 70.0)
    none, recent = await store.load_open()
    assert (none.session, none.turns, none.next_index) == (empty, (), 0)
    assert recent.session == make_session()
    assert recent.next_index == 3
    assert recent.turns == tuple(
        TurnOutline(
            index=turn.index,
            parent=turn.parent,
            kind=turn.kind,
            request_digest=turn.request_digest,
            chain=turn.chain,
            delivered=turn.index == 0,
            finish_reason="stop",
            has_next_state=turn.index == 0,
            has_tools=turn.index == 1,
        )
        for turn in (first, second, side)
    )
    assert (recent.has_tools, none.has_tools) == (True, False)
    assert await store.turn_owner(SESSION, 2) == "ann"
    assert await store.turn_owner(SESSION, 3) is None
    assert await store.get_turn(SESSION, 9) is None


@sqlite_only
async def test_the_log_does_not_grow_with_the_store(tmp_path: Path) -> None:
    wal = tmp_path / "store.sqlite3-wal"
    async with await open_store(tmp_path, checkpoint_bytes=100_000) as store:
        await store.put_session(make_session())
        for index in range(80):
            await store.put_turn(make_turn(index, text="word " * 2000))
        assert wal.stat().st_size < 400_000
    assert len(read_store(tmp_path).turns(SESSION)) == 80


@sqlite_only
async def test_a_reader_that_holds_the_log_does_not_stop_the_writer(tmp_path: Path) -> None:
    wal = tmp_path / "store.sqlite3-wal"
    async with await open_store(tmp_path, checkpoint_bytes=50_000) as store:
        await store.put_session(make_session())
        with connect_reader(tmp_path / "store.sqlite3", immutable=False) as held, held.begin():
            held.exec_driver_sql("SELECT count(*) FROM turn").scalar_one()
            for index in range(20):
                await store.put_turn(make_turn(index, text="word " * 2000))
            assert held.exec_driver_sql("SELECT count(*) FROM turn").scalar_one() == 0
            length = wal.stat().st_size
            assert length > 200_000
        for index in range(20, 60):
            await store.put_turn(make_turn(index, text="word " * 2000))
        assert wal.stat().st_size < length + 200_000


async def test_sessions_are_summed_up(store: SqlStore, reader: SqlReader) -> None:
    swapped = make_turn(1, kind="side", token_ids=(1, 2, 3, 4))
    spans = (
        replace(swapped.completion.version_spans[0], end=2),
        replace(swapped.completion.version_spans[0], version="v1", start=2),
    )
    swapped = replace(swapped, completion=replace(swapped.completion, version_spans=spans))
    bob: Session = make_session("s-bob", user="bob", last_seen_at=500.0)
    await asyncio.gather(store.put_session(bob), *map(store.put_turn, (make_turn(0), swapped, make_turn(2))))
    first, second = reader.sessions()
    assert (first.session, first.main_turns, first.side_turns, first.tokens) == (bob, 0, 0, 0)
    assert (first.versions, first.last_turn_at) == ((), None)
    assert (second.session, second.main_turns, second.side_turns, second.tokens) == (make_session(), 2, 1, 10)
    assert (second.versions, second.last_turn_at) == (("v0", "v1"), 102.5)
    assert [summary.session for summary in reader.sessions("bob")] == [bob]
    assert reader.sessions("nobody") == []


async def test_what_learns_takes_turns_with_people(store: SqlStore) -> None:
    """A commit that somebody waits for waits for one transaction of learning at most, however many there are."""
    done: list[str] = []
    first_is_done = asyncio.Event()

    async def learn(name: str) -> None:
        await store._learn(lambda _: time.sleep(0.05))
        done.append(name)
        first_is_done.set()

    async def talk(index: int) -> None:
        await store.put_turn(make_turn(index))
        done.append(f"turn {index}")

    learning = [asyncio.create_task(learn(f"lesson {number}")) for number in range(3)]
    await asyncio.sleep(0)
    await talk(0)
    await first_is_done.wait()
    await talk(1)
    await talk(2)
    await asyncio.gather(*learning)
    assert done == ["lesson 0", "turn 0", "turn 1", "turn 2", "lesson 1", "lesson 2"]

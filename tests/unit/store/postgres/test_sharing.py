"""Several processes on one store: what each is told, and what only one of them may do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.store import PostgresStore, open_reader
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION
from openclaw_rl.types import ApiKey, Message, News, NextState, Sample
from tests.factories.planned import LINE, made, planned
from tests.factories.stored import put_samples
from tests.factories.turns import SESSION, make_session, make_turn

Two = tuple[PostgresStore, PostgresStore]


def followed(index: int, arrived_at: float = 150.0) -> NextState:
    return NextState(
        session=SESSION, index=index, messages=(Message(role="user", content="no"),), arrived_at=arrived_at
    )


async def test_who_starts_at_once_makes_the_tables_once(tmp_path: Path, url: str) -> None:
    stores = await asyncio.gather(*(PostgresStore.open(tmp_path / str(number), url) for number in range(3)))
    assert sorted(store.recovery.schema_from for store in stores) == [0, SCHEMA_VERSION, SCHEMA_VERSION]
    for store in stores:
        await store.close()


async def test_two_cannot_share_a_data_directory(tmp_path: Path, url: str) -> None:
    async with await PostgresStore.open(tmp_path, url):
        with pytest.raises(StoreError, match="already writes"):
            await PostgresStore.open(tmp_path, url)


async def test_what_is_acknowledged_anywhere_is_news_everywhere(two: Two) -> None:
    a, b = two
    await a.put_session(make_session())
    await a.put_turn(make_turn())
    assert (await b.news()).sessions == (SESSION,)
    assert await b.news() == News()
    assert await a.news() == News(), "what one did itself is no news"
    await a.put_key(ApiKey(id="k", user="ann", digest=b"1", created_at=1.0))
    assert await b.news() == News(keys=True)
    await a.lessons.delete_session(SESSION)
    assert await b.news() == News(gone=(SESSION,))


async def test_numbers_are_given_in_the_order_of_commits(two: Two, tmp_path: Path, url: str) -> None:
    a, b = two
    await a.put_session(make_session())
    await asyncio.gather(*(two[index % 2].put_turn(make_turn(index)) for index in range(40)))
    await asyncio.gather(*(two[index % 2].put_next_state(followed(index)) for index in range(40)))
    rows = open_reader(tmp_path, url)._ask(
        lambda connection: connection.exec_driver_sql("SELECT seq FROM next_state ORDER BY seq").scalars().all()
    )
    assert list(rows) == list(range(1, 41))
    assert len(await b.lessons.lease("judge", limit=100, ttl_s=60.0)) == 40


async def test_no_turn_number_is_given_twice(two: Two) -> None:
    a, b = two
    assert await a.reserve(SESSION, 0, 1) == 0
    assert await b.reserve(SESSION, 0, 3) == 1
    assert await a.reserve(SESSION, 1, 1) == 4
    assert await b.reserve(SESSION, 9, 1) == 9


async def test_a_conversation_that_was_forgotten_does_not_come_back_with_an_answer_under_way(two: Two) -> None:
    """What is begun after the news is another conversation of the same name."""
    a, b = two
    await b.put_session(make_session())
    await b.put_turn(make_turn())
    await a.lessons.delete_session(SESSION)
    results = await asyncio.gather(b.put_session(make_session()), b.put_turn(make_turn(1)), return_exceptions=True)
    assert all(isinstance(one, StoreError) and "forgotten meanwhile" in str(one) for one in results)
    assert await a.outline(SESSION) is None
    assert (await b.news()).gone == (SESSION,)
    later = 4e9
    await b.put_session(make_session(opened_at=later, last_seen_at=later))
    await b.put_turn(replace(make_turn(0), created_at=later, finished_at=later))
    assert await a.get_turn(SESSION, 0) is not None


async def test_loops_are_woken_in_other_processes(two: Two) -> None:
    a, b = two
    await a.put_session(make_session())
    woken = b.lessons.woken("judge")
    woken.clear()
    settled = b.settled()
    await asyncio.gather(a.put_turn(make_turn()), a.put_next_state(followed(0)))
    async with asyncio.timeout(30):
        await woken.wait()
        b.lessons.woken("sessions")
        await settled.wait()


async def test_one_process_at_a_time_has_a_claim(two: Two) -> None:
    a, b = two
    async with a.lessons.claimed("line x") as first, a.lessons.claimed("line x") as again:
        assert (first, again) == (True, True), "its own loops know of each other"
        async with b.lessons.claimed("line x") as other, b.lessons.claimed("line y") as another:
            assert (other, another) == (False, True)
    async with b.lessons.claimed("line x") as free:
        assert free


async def test_what_is_begun_inside_a_claim_is_not_written_once_it_is_lost(tmp_path: Path, url: str) -> None:
    """A process that was stopped for too long wakes up: another one has taken its line over."""
    async with (
        await PostgresStore.open(tmp_path / "a", url, claim_s=0.3) as a,
        await PostgresStore.open(tmp_path / "b", url) as b,
    ):
        samples: list[Sample] = [made("a"), made("b")]
        await put_samples(a, samples)
        async with a.lessons.claimed(f"line {LINE}") as mine:
            assert mine
            held = a._claims._held[f"line {LINE}"]
            held.renewing.cancel()  # as if the process were stopped
            await asyncio.sleep(0.4)
            async with b.lessons.claimed(f"line {LINE}") as taken_over:
                assert taken_over
                await b.lessons.plan_step(planned(1, 0, "a.0"))
                with pytest.raises(StoreUnavailable, match="another process has taken over"):
                    await a.lessons.plan_step(planned(2, 0, "b.0"))
        assert [step.number for step in await b.lessons.planned_steps()] == [1]

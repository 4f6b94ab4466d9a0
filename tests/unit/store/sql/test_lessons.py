"""Work that is leased, what it made, and that nothing of it is counted twice."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from openclaw_rl.store import SqlStore
from openclaw_rl.store.learning_log import LearningLog
from openclaw_rl.types import (
    Baseline,
    Credit,
    Feedback,
    Judgement,
    Lease,
    Message,
    NextState,
    Sample,
    Skip,
    Verdict,
    Vote,
)
from tests.factories.samples import sample_of
from tests.factories.stored import mark_trained
from tests.factories.turns import SESSION, make_conversation, make_session, make_turn
from tests.stores import open_store, read_store, sqlite_only
from tests.unit.store.older import make_older

NOW = time.time() - 1000
TURNS = make_conversation(3)
VERDICT = Verdict(
    outcome="scored",
    score=-1,
    votes=(
        Vote(question="score", score=-1, raw="\\boxed{-1}"),
        Vote(question="score", score=None, failure="no marker"),
        Vote(question="hint", score=1, hint="Answer in one sentence."),
    ),
    hints=("Answer in one sentence.",),
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        await opened.put_session(make_session())
        for turn in TURNS:
            await opened.put_turn(turn)
        yield opened


@pytest.fixture
def lessons(store: SqlStore) -> LearningLog:
    return store.lessons


async def tell(store: SqlStore, index: int = 0) -> None:
    state = NextState(
        session=SESSION, index=index, messages=(Message(role="user", content="no, shorter"),), arrived_at=NOW
    )
    await store.put_next_state(state)


def said(text: str, index: int = 0) -> Feedback:
    return Feedback(session=SESSION, index=index, user="ann", given_at=NOW + 1, score=-1, text=text)


async def take(lessons: LearningLog, stage: str = "judge", ttl_s: float = 60.0) -> list[Lease]:
    return await lessons.lease(stage, limit=10, ttl_s=ttl_s)  # type: ignore[arg-type]


def judged(held: Lease, verdict: Verdict = VERDICT) -> Judgement:
    return Judgement(
        session=held.session,
        index=held.index,
        num_evidence=held.num_evidence,
        judge="rules",
        prompt_version="rules-1",
        judged_at=NOW + 5,
        verdict=verdict,
    )


def credited(held: Lease, *samples: Sample, **changes: object) -> Credit:
    credit = Credit(
        session=held.session,
        index=held.index,
        num_evidence=held.num_evidence,
        rule="combine",
        credited_at=NOW + 6,
        reward=-1.0,
        skip=None if samples else Skip.NEUTRAL,
        samples=samples,
    )
    return replace(credit, **changes)  # type: ignore[arg-type]


async def test_evidence_makes_one_task_however_often_it_is_put(store: SqlStore, lessons: LearningLog) -> None:
    assert await take(lessons) == []
    await tell(store)
    await tell(store)
    (held,) = await take(lessons)
    assert (held.session, held.index, held.num_evidence, held.attempts) == (SESSION, 0, 1, 0)
    assert await take(lessons) == [], "leased once"


async def test_whoever_waits_is_woken_by_evidence_and_by_judgements(store: SqlStore, lessons: LearningLog) -> None:
    assert not lessons.woken("judge").is_set()
    await tell(store)
    assert lessons.woken("judge").is_set()
    lessons.woken("judge").clear()
    await store.put_feedback(said("too long"))
    assert lessons.woken("judge").is_set()
    (held,) = await take(lessons)
    assert not lessons.woken("credit").is_set()
    await lessons.put_judgement(held, judged(held))
    assert lessons.woken("credit").is_set()


async def test_a_lease_that_ended_is_taken_over_and_the_first_one_counts_no_more(
    store: SqlStore, lessons: LearningLog
) -> None:
    await tell(store)
    (first,) = await take(lessons, ttl_s=-1.0)
    (second,) = await take(lessons)
    assert second.token == first.token + 1
    before = time.time()
    (renewed,) = await lessons.renew([first, second], ttl_s=90.0)
    assert renewed == replace(second, until=renewed.until)
    assert before + 90.0 <= renewed.until <= time.time() + 90.0
    assert not await lessons.put_judgement(first, judged(first))
    assert not await lessons.give_back(first, due_at=0.0)
    assert await lessons.judgements(SESSION) == []
    assert await lessons.put_judgement(second, judged(second))
    assert await lessons.judgements(SESSION) == [judged(second)]
    assert await take(lessons) == []


async def test_what_was_given_back_is_due_later_and_its_attempts_are_counted(
    store: SqlStore, lessons: LearningLog
) -> None:
    await tell(store)
    (held,) = await take(lessons)
    later = time.time() + 500
    await lessons.give_back(held, due_at=later)
    assert await take(lessons) == []
    assert await lessons.next_due("judge") == later
    assert await lessons.release_earlier() == 0, "it waits on purpose: a restart does not hurry it"
    await store.put_feedback(said("now I am angry"))
    (again,) = await take(lessons)
    assert (again.num_evidence, again.attempts) == (2, 0), "news are a new beginning"


@sqlite_only
async def test_a_start_releases_the_leases_of_earlier_lives_and_of_nobody_else(
    store: SqlStore, lessons: LearningLog, tmp_path: Path
) -> None:
    for index in range(3):
        await tell(store, index)
    (mine,) = await lessons.lease("judge", limit=1, ttl_s=1e6)
    (remote,) = await lessons.lease("judge", limit=1, ttl_s=1e6, owner="worker:elsewhere")
    (failed,) = await lessons.lease("judge", limit=1, ttl_s=1e6)
    await lessons.give_back(failed, due_at=0.0)
    (again,) = await lessons.lease("judge", limit=1, ttl_s=1e6)
    assert (again.attempts, mine.owner) == (1, again.owner)
    assert await lessons.release_earlier() == 0, "it lives"
    await store.close()
    async with await open_store(tmp_path) as opened:
        assert await opened.lessons.release_earlier() == 2, "also one that was tried before"
        assert {one.index for one in await take(opened.lessons)} == {mine.index, again.index}
        assert await opened.lessons.renew([mine, remote], ttl_s=1.0) == [replace(remote, until=ANY)]


async def test_evidence_that_arrives_while_it_is_judged_is_judged_next(store: SqlStore, lessons: LearningLog) -> None:
    await tell(store)
    (held,) = await take(lessons, ttl_s=0.0)
    await lessons.put_judgement(held, judged(held))
    await store.put_feedback(said("and wrong"))
    (again,) = await take(lessons)
    assert again.num_evidence == 2
    better = judged(again, replace(VERDICT, hints=("Answer in one sentence.", "Check the facts.")))
    assert await lessons.put_judgement(again, better)
    assert await lessons.judgements(SESSION) == [better], "the newest one stands"
    (credit,) = await take(lessons, "credit")
    assert credit.num_evidence == 2


async def test_samples_come_back_as_they_were_made(store: SqlStore, lessons: LearningLog, tmp_path: Path) -> None:
    await tell(store, 1)
    (held,) = await take(lessons)
    await lessons.put_judgement(held, judged(held))
    (held,) = await take(lessons, "credit")
    samples = sample_of(TURNS[1]), sample_of(TURNS[1], prompt=TURNS[0])
    baseline = Baseline(line="ann", turn_kind="main", mean=-0.25, count=4)
    credit = credited(held, *samples, baseline=baseline)
    assert await lessons.put_credit(held, credit)
    assert await lessons.credits(SESSION) == [replace(credit, baseline=None)]
    assert await lessons.waiting_samples("ann", 10) == list(samples)
    assert await lessons.waiting_samples("bob", 10) == []
    assert await lessons.baseline("ann", "main") == baseline
    assert await lessons.baseline("ann", "side") == Baseline(line="ann", turn_kind="side")
    reader = read_store(tmp_path)
    assert reader.credits(SESSION) == [replace(credit, baseline=None)]
    assert reader.judgements(SESSION)[0].verdict == VERDICT
    assert reader.waiting_samples(None, 1) == [samples[0]]
    assert reader.num_open("judge") == reader.num_open("credit") == 0


async def test_a_credit_replaces_its_samples_but_never_one_that_was_learned_from(
    store: SqlStore, lessons: LearningLog
) -> None:
    await tell(store)
    (held,) = await take(lessons)
    await lessons.put_judgement(held, judged(held))
    (held,) = await take(lessons, "credit")
    await lessons.put_credit(held, credited(held, sample_of(TURNS[0])))
    assert not await lessons.put_credit(replace(held, token=99), credited(held)), "not by who holds no lease"
    second = replace(sample_of(TURNS[0]), reward=1.0)
    await lessons.put_credit(held, credited(held, second))
    assert await lessons.waiting_samples("ann", 10) == [second]
    await mark_trained(store, second.id, step=3)
    assert await lessons.waiting_samples("ann", 10) == []
    await lessons.put_credit(held, credited(held, sample_of(TURNS[0])))
    assert [credit.skip for credit in await lessons.credits(SESSION)] == [Skip.ALREADY_TRAINED]
    assert await lessons.waiting_samples("ann", 10) == []


async def test_only_sessions_that_ended_when_asked_so(store: SqlStore, lessons: LearningLog) -> None:
    await tell(store)
    assert await lessons.lease("judge", limit=1, ttl_s=60.0, only_closed_sessions=True) == []
    await store.close_session(SESSION, NOW + 9)
    assert len(await lessons.lease("judge", limit=1, ttl_s=60.0, only_closed_sessions=True)) == 1


async def test_flags_outlive_the_store_and_a_deleted_session_leaves_no_row(
    store: SqlStore, lessons: LearningLog, tmp_path: Path
) -> None:
    await lessons.set_flag("judge.paused", "it lies")
    await store.put_session(make_session("s-2"))
    await store.put_turn(make_turn(session="s-2"))
    await tell(store)
    await store.put_feedback(said("no"))
    (held,) = await take(lessons)
    await lessons.put_judgement(held, judged(held))
    (held,) = await take(lessons, "credit")
    await lessons.put_credit(held, credited(held, sample_of(TURNS[0])))
    await store.close_session(SESSION, NOW)
    assert await lessons.sessions_older_than(150.0) == [SESSION]
    await lessons.delete_session(SESSION)
    await store.close()
    reader = read_store(tmp_path)
    assert reader.flag("judge.paused") == "it lies"
    assert [summary.session.id for summary in reader.sessions()] == ["s-2"]
    assert (reader.turns(SESSION), reader.judgements(SESSION), reader.credits(SESSION)) == ([], [], [])
    assert reader.waiting_samples(None, 9) == []
    async with await open_store(tmp_path) as again:
        await again.lessons.set_flag("judge.paused", None)
        assert await again.lessons.flag("judge.paused") is None


@sqlite_only
async def test_an_older_store_has_its_evidence_judged_too(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await store.put_session(make_session())
        await store.put_turn(make_turn())
        await tell(store)
        await store.put_feedback(said("no"))
    make_older(tmp_path, 2)
    async with await open_store(tmp_path) as store:
        (held,) = await take(store.lessons)
        assert held.num_evidence == 2

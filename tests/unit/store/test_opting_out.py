"""Who opts out is not learned from, whenever it is said: before, while or after what was said became a sample."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.store import SqlStore
from openclaw_rl.types import Credit, Feedback, Judgement, Lease, Sample, Skip, Turn, Verdict, sample_id
from openclaw_rl.types.learning import SampleKind
from tests.factories.stored import mark_trained
from tests.factories.turns import SESSION, make_conversation, make_session
from tests.stores import open_store

TURNS = make_conversation(3)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as store:
        for name in (SESSION, "other"):
            await store.put_session(make_session(name))
            for turn in make_conversation(3, session=name):
                await store.put_turn(turn)
        yield store


def sample_of(turn: Turn, *, prompt: Turn | None = None) -> Sample:
    size, prompt = len(turn.completion.token_ids), prompt or turn
    kind: SampleKind = "turn" if prompt is turn else "rewrite"
    return Sample(
        id=sample_id(turn.session, turn.index, kind),
        line="ann",
        kind=kind,
        session=turn.session,
        index=turn.index,
        prompt_index=prompt.index,
        created_at=1.0 + turn.index,
        prompt_ids=prompt.prompt_ids,
        response_ids=turn.completion.token_ids,
        loss_mask=(True,) * size,
        advantages=(1.0,) * size,
        logprobs=turn.completion.logprobs if prompt is turn else None,
        temperature=0.7,
        on_policy=True,
        reward=1.0,
        w_rl=1.0,
        w_opd=0.0,
        candidates=(),
        version_spans=turn.completion.version_spans,
    )


async def judged(store: SqlStore, index: int, session: str = SESSION) -> Lease:
    """A turn up to its judgement; the lease of its credit."""
    await store.put_feedback(Feedback(session=session, index=index, user="ann", given_at=1.0, score=1))
    (held,) = await store.lessons.lease("judge", limit=9, ttl_s=60)
    given = Judgement(
        session=session,
        index=index,
        num_evidence=held.num_evidence,
        judge="rules",
        prompt_version="1",
        judged_at=2.0,
        verdict=Verdict(outcome="scored", score=1),
    )
    assert await store.lessons.put_judgement(held, given)
    (held,) = await store.lessons.lease("credit", limit=9, ttl_s=60)
    return held


async def credit(store: SqlStore, held: Lease, *samples: Sample) -> None:
    made = Credit(
        session=held.session,
        index=held.index,
        num_evidence=held.num_evidence,
        rule="binary",
        credited_at=3.0,
        reward=1.0,
        samples=samples,
    )
    assert await store.lessons.put_credit(held, made)


async def waiting(store: SqlStore) -> list[str]:
    return [sample.id for sample in await store.lessons.waiting_samples(None, 99)]


async def reasons(store: SqlStore) -> dict[int, Skip | None]:
    return {one.index: one.skip for one in await store.lessons.credits(SESSION)}


async def test_a_session_that_opts_out_takes_back_what_was_not_learned_yet(store: SqlStore) -> None:
    await credit(store, await judged(store, 0), sample_of(TURNS[0]))
    await credit(store, await judged(store, 1), sample_of(TURNS[1]))
    others = make_conversation(3, session="other")
    await credit(store, await judged(store, 0, "other"), sample_of(others[0]))
    await mark_trained(store, f"{SESSION}.0", step=7)
    await store.put_session(make_session())
    assert await waiting(store) == ["other.0", f"{SESSION}.1"]
    await store.put_session(make_session(opted_out=True))
    assert await waiting(store) == ["other.0"]
    assert await reasons(store) == {0: None, 1: Skip.OPTED_OUT}
    assert [one.samples for one in await store.lessons.credits(SESSION)][1] == ()


async def test_a_session_that_opted_out_while_it_was_credited_has_no_sample(store: SqlStore) -> None:
    held = await judged(store, 0)
    await store.put_session(make_session(opted_out=True))
    await credit(store, held, sample_of(TURNS[0]))
    assert await waiting(store) == []
    assert await reasons(store) == {0: Skip.OPTED_OUT}


@pytest.mark.parametrize("late", [False, True])
async def test_a_turn_that_is_left_out_takes_its_rewrites_with_it(store: SqlStore, late: bool) -> None:
    """Turn 2 is a sample of its own, and one more behind the prompt of turn 0, which is left out."""
    both = (sample_of(TURNS[2]), sample_of(TURNS[2], prompt=TURNS[0]))
    held = await judged(store, 2)
    if late:
        await credit(store, held, *both)
        assert len(await waiting(store)) == 2
    await store.mark_skip(SESSION, 0, Skip.OPTED_OUT)
    if not late:
        await credit(store, held, *both)
    assert await waiting(store) == [f"{SESSION}.2"]
    assert await reasons(store) == {2: None}
    await store.mark_skip(SESSION, 2, Skip.OPTED_OUT)
    assert await waiting(store) == []
    assert await reasons(store) == {2: Skip.OPTED_OUT}


async def test_other_reasons_to_skip_take_nothing_back(store: SqlStore) -> None:
    """A turn that nothing followed may still have been praised outright."""
    await credit(store, await judged(store, 2), sample_of(TURNS[2]))
    await store.mark_skip(SESSION, 2, Skip.NO_NEXT_STATE)
    assert await waiting(store) == [f"{SESSION}.2"]


async def test_a_redacted_turn_has_no_sample_whatever_was_credited(store: SqlStore) -> None:
    await store.put_turn(replace(TURNS[0], index=3, skip=Skip.REDACTED))
    await credit(
        store, await judged(store, 3), replace(sample_of(TURNS[0]), index=3, prompt_index=3, id=f"{SESSION}.3")
    )
    assert await waiting(store) == []

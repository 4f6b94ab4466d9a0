"""Samples made by hand, put into a real store the way the pipeline does: turn, evidence, judgement, credit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import update

from openclaw_rl.store import SqlStore
from openclaw_rl.store.sql import schema
from openclaw_rl.types import (
    Completion,
    Credit,
    Judgement,
    Message,
    NextState,
    Sample,
    Sampling,
    Session,
    Turn,
    Verdict,
)
from tests.factories.turns import make_turn


async def put_samples(store: SqlStore, samples: Iterable[Sample], *, model: str = "tiny") -> None:
    """Each waits for a step then. A session is opened with its first sample and belongs to the sample's line."""
    for sample in samples:
        if await store.lessons.get_session(sample.session) is None:
            session = Session(id=sample.session, user=sample.line, client="test", opened_at=1.0, last_seen_at=1.0)
            await store.put_session(session)
        await store.put_turn(turn_of(sample, model))
        await put_lesson(store, sample)


async def put_lesson(store: SqlStore, sample: Sample) -> None:
    """Judges and credits a turn that is there."""
    lessons = store.lessons
    said = (Message(role="user", content="no"),)
    await store.put_next_state(NextState(session=sample.session, index=sample.index, messages=said, arrived_at=1.0))
    (held,) = await lessons.lease("judge", limit=1, ttl_s=60.0)
    facts: dict[str, Any] = {"session": sample.session, "index": sample.index, "num_evidence": 1}
    verdict = Verdict(outcome="scored", score=-1)
    judgement = Judgement(**facts, judge="rules", prompt_version="1", judged_at=1.0, verdict=verdict)
    assert await lessons.put_judgement(held, judgement)
    (held,) = await lessons.lease("credit", limit=1, ttl_s=60.0)
    credit = Credit(**facts, rule="binary", credited_at=1.0, reward=-1.0, samples=(sample,))
    assert await lessons.put_credit(held, credit)


def turn_of(sample: Sample, model: str = "tiny") -> Turn:
    """The turn that the sample says it was made of."""
    return make_turn(
        sample.index,
        session=sample.session,
        created_at=1.0,
        finished_at=1.0,
        model=model,
        messages=(Message(role="user", content=f"question {sample.id}"),),
        sampling=Sampling(max_tokens=64, temperature=sample.temperature),
        prompt_ids=sample.prompt_ids,
        completion=Completion(
            token_ids=sample.response_ids,
            logprobs=sample.logprobs or (-1.0,) * len(sample.response_ids),
            finish_reason="stop",
            version_spans=sample.version_spans,
        ),
        text=f"answer {sample.id}",
        request_digest=f"request {sample.id}",
        chain=f"chain {sample.id}",
    )


async def mark_trained(store: SqlStore, *samples: str, step: int) -> None:
    """As if a step had learned from these samples; the step itself has no row."""
    column = schema.sample.c
    learned = update(schema.sample).where(column.id.in_(samples)).values(step=step)
    await store._transact(lambda connection: connection.execute(learned))

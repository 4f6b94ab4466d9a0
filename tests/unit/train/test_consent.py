"""Who teaches whom: nobody who opted out, nobody but the user of a line, and nobody more than the caps allow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import load_config
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Credit, Feedback, Judgement, Lesson, Sample, Session, Skip, Step, Verdict
from openclaw_rl.wiring.learning import make_planner
from tests.factories.orders import sample
from tests.factories.stored import put_samples, turn_of
from tests.unit.train.test_planning import take


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


def of(line: str, session: str, index: int = 0, **changes: Any) -> Sample:
    return sample(index, line=line, session=session, id=f"{session}.{index}", **changes)


async def plan(store: SqliteStore, line: str, *overrides: str) -> Step | None:
    """By the planner as it is configured."""
    training = load_config(env={}, overrides=list(overrides)).config.training
    return await make_planner(training, store.lessons).next_step(line, now=1.0)


async def opt_out(store: SqliteStore, session: str) -> None:
    found = await store.lessons.get_session(session)
    assert found is not None
    await store.put_session(replace(found, opted_out=True))


async def test_a_session_that_opted_out_is_in_no_step_new_replayed_or_rebuilt(store: SqliteStore) -> None:
    await put_samples(store, [of("ann", name) for name in ("a", "b", "c")])
    first = await plan(store, "ann")
    assert first is not None
    assert set(first.sample_ids) == {"a.0", "b.0", "c.0"}
    await take(store, first)
    await put_samples(store, [of("ann", "d"), of("ann", "e")])
    await opt_out(store, "a")
    await opt_out(store, "d")
    second = await plan(store, "ann", "training.replay_max_age=9", "training.batch_size=8")
    assert second is not None
    assert (second.sample_ids, set(second.replayed_ids)) == (("e.0",), {"b.0", "c.0"})
    await store.lessons.undo(Lesson(line="ann", turn=("b", 0)), reason="it was wrong")
    rebuilt = await plan(store, "ann", "training.replay_max_age=9", "training.batch_size=8")
    assert rebuilt is not None
    assert (set(rebuilt.sample_ids), rebuilt.replayed_ids, rebuilt.parent) == ({"c.0", "e.0"}, (), 0)
    assert [credit.skip for credit in await store.lessons.credits("a")] == [Skip.OPTED_OUT]


async def test_a_line_learns_from_its_user_alone(store: SqliteStore) -> None:
    await put_samples(store, [of("mallory", f"m{at}", prompt_ids=(7,) * 9) for at in range(90)])
    await put_samples(store, [of("ann", "a"), of("ann", "b")])
    for _ in range(3):
        step = await plan(store, "mallory")
        assert step is not None
        await take(store, step)
    hers = await plan(store, "ann", "training.replay_max_age=99", "training.batch_size=64")
    assert hers is not None
    assert (set(hers.sample_ids), hers.replayed_ids, hers.parent) == ({"a.0", "b.0"}, (), 0)
    undone = await store.lessons.undo(Lesson(line="mallory", sessions=("m0",)), reason="poison")
    assert undone.num_removed == 1
    assert [one.line for one in await store.lessons.waiting_samples("ann", 9)] == ["ann", "ann"]
    assert {version.line for version in await store.lessons.versions()} == {"mallory"}


async def test_one_session_fills_no_more_of_a_batch_than_its_share(store: SqliteStore) -> None:
    await put_samples(store, [of("ann", "flood", at, prompt_ids=(7,) * 9) for at in range(90)])
    await put_samples(store, [of("ann", f"s{at}", created_at=1.0) for at in range(3)])
    caps = ("training.batch_size=40", "training.max_session_share=0.2")
    step = await plan(store, "ann", *caps)
    assert step is not None
    counts = Counter(name.rpartition(".")[0] for name in step.sample_ids)
    assert counts == {"flood": 8, "s0": 1, "s1": 1, "s2": 1}


async def test_feedback_that_is_said_a_thousand_times_teaches_once(store: SqliteStore) -> None:
    taught = of("ann", "a")
    await store.put_session(Session(id="a", user="ann", client="test", opened_at=1.0, last_seen_at=1.0))
    await store.put_turn(turn_of(taught))
    for round_ in range(2):
        moments = range(500 * round_, 500 * round_ + 500)
        await asyncio.gather(
            *(
                store.put_feedback(Feedback(session="a", index=0, user="ann", given_at=float(at), score=1))
                for at in moments
            )
        )
        (held,) = await store.lessons.lease("judge", limit=9, ttl_s=60.0)
        verdict = Verdict(outcome="scored", score=1)
        judgement = Judgement(
            session="a",
            index=0,
            num_evidence=held.num_evidence,
            judge="rules",
            prompt_version="1",
            judged_at=1.0,
            verdict=verdict,
        )
        assert await store.lessons.put_judgement(held, judgement)
        (held,) = await store.lessons.lease("credit", limit=9, ttl_s=60.0)
        credit = Credit(
            session="a",
            index=0,
            num_evidence=held.num_evidence,
            rule="binary",
            credited_at=1.0,
            reward=1.0,
            samples=(taught,),
        )
        assert await store.lessons.put_credit(held, credit)
        assert [one.id for one in await store.lessons.waiting_samples("ann", 9)] == (["a.0"] if round_ == 0 else [])
        if round_ == 0:
            step = await plan(store, "ann")
            assert step is not None
            await take(store, step)
    assert [one.skip for one in await store.lessons.credits("a")] == [Skip.ALREADY_TRAINED]

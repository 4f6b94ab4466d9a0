"""Steps and versions come back as they were put, and a step that ended stays ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqlStore
from openclaw_rl.types import (
    Episode,
    Judgement,
    Message,
    NextState,
    Outcome,
    Session,
    Stage,
    Step,
    Verdict,
    Version,
    Waiting,
)
from openclaw_rl.types.training import DOUBT_S
from tests.factories.orders import sample
from tests.factories.stored import put_samples, turn_of
from tests.factories.weights import folder_ref
from tests.stores import open_store, read_store

STEP = Step(
    line="local",
    number=1,
    state="planned",
    planned_at=5.0,
    seed=3,
    parent=0,
    sample_ids=(sample(1).id, sample(0).id),
    replayed_ids=("of", "old"),
    num_anchors=2,
)
DONE = replace(STEP, state="done", finished_at=6.0, metrics={"loss/total": 0.25, "policy/age": 1.0})
VERSION = Version(
    line="local",
    number=1,
    parent=0,
    state="candidate",
    created_at=6.0,
    weights=folder_ref("/v1/weights", "ab"),
    gate={"kl": 0.1},
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        await put_samples(opened, [sample(0), sample(1), sample(2)])
        yield opened


async def test_a_step_comes_back_as_it_was_planned_and_as_it_ended(store: SqlStore, tmp_path: Path) -> None:
    lessons, reader = store.lessons, read_store(tmp_path)
    await lessons.plan_step(STEP)
    assert await lessons.planned_steps() == [STEP]
    assert [one.index for one in await lessons.waiting_samples("local", 9)] == [2]
    assert [one.index for one in await lessons.samples_named((*STEP.sample_ids, *STEP.replayed_ids))] == [1, 0]
    assert await lessons.finish_step(DONE, VERSION)
    assert await lessons.planned_steps() == []
    assert (reader.steps("local"), reader.versions()) == ([DONE], [VERSION])
    assert not await lessons.finish_step(replace(DONE, state="discarded"), None)
    assert reader.steps("local") == [DONE]
    assert await lessons.next_step_number("local") == 2
    assert await lessons.next_step_number("ann") == 1


async def test_two_steps_never_have_the_same_sample(store: SqlStore) -> None:
    await store.lessons.plan_step(STEP)
    with pytest.raises(StoreError, match="samples that it cannot have"):
        await store.lessons.plan_step(replace(STEP, number=2, sample_ids=(sample(2).id, sample(1).id)))
    with pytest.raises(StoreError, match="samples that it cannot have"):
        await store.lessons.plan_step(replace(STEP, number=2, line="ann", sample_ids=(sample(2).id,)))
    assert [one.index for one in await store.lessons.waiting_samples(None, 9)] == [2], "all or nothing"
    assert len(await store.lessons.planned_steps()) == 1


async def test_one_version_of_a_line_is_live_and_files_that_go_leave_their_row(store: SqlStore) -> None:
    lessons = store.lessons
    for number in (1, 2, 3):
        await lessons.plan_step(replace(STEP, number=number, sample_ids=(sample(number - 1).id,)))
        await lessons.finish_step(replace(DONE, number=number, sample_ids=()), replace(VERSION, number=number))
        await lessons.set_version_state("local", number, "live", gate={"kl": number})
    assert [one.state for one in await lessons.versions("local")] == ["retired", "retired", "live"]
    await lessons.forget_files("local", [1])
    first, second, _ = await lessons.versions("local")
    assert (first.weights, first.gate, second.folder) == (None, {"kl": 1}, Path("/v1/weights"))
    with pytest.raises(StoreError, match="no version 9"):
        await lessons.set_version_state("local", 9, "live")


async def test_what_is_measured_later_joins_the_metrics_of_its_step(store: SqlStore, tmp_path: Path) -> None:
    await store.lessons.plan_step(STEP)
    await store.lessons.finish_step(DONE, VERSION)
    step = await store.lessons.add_metrics("local", 1, {"eval/capability": 0.5, "loss/total": 0.3})
    expected = replace(DONE, metrics={"loss/total": 0.3, "policy/age": 1.0, "eval/capability": 0.5})
    assert (step, read_store(tmp_path).steps("local")) == (expected, [expected])
    assert await store.lessons.add_metrics("local", 2, {"eval/capability": 0.5}) is None


def waits(line: str, last_step_at: float, *, doubted: int = 0, num: int = 2, since: float = 0.0) -> Waiting:
    return Waiting(line=line, num_samples=num, since=since, num_doubted=doubted, last_step_at=last_step_at)


def session(user: str, name: str = "", **changes: Any) -> Session:
    return replace(
        Session(id=name or f"of-{user}", user=user, client="test", opened_at=1.0, last_seen_at=1.0), **changes
    )


async def silent(store: SqlStore) -> dict[str, float | None]:
    return {each.line: each.silent_since for each in await store.lessons.waiting()}


async def says(store: SqlStore, name: str, index: int, at: float) -> None:
    await store.put_turn(turn_of(sample(index, session=name)))
    said = (Message(role="user", content="and"),)
    await store.put_next_state(NextState(session=name, index=index, messages=said, arrived_at=at))


async def finish(store: SqlStore, stage: Stage) -> None:
    for held in await store.lessons.lease(stage, limit=9, ttl_s=60.0):
        await store.lessons.close_task(held)


async def test_since_when_a_person_is_silent(store: SqlStore) -> None:
    for line, created_at in (("ann", 50.0), ("bob", 60.0)):
        await put_samples(store, [sample(9, id=line, line=line, session=f"of-{line}", created_at=created_at)])
    samples_at = {"local": 1.0, "ann": 50.0, "bob": 60.0}
    assert await silent(store) == samples_at, "the last sample is of something they said"
    await store.put_session(session("ann", "another", last_seen_at=70.0))
    assert await silent(store) == samples_at | {"ann": 70.0}, "any session counts"
    await says(store, "another", 1, 80.0)
    assert await silent(store) == samples_at | {"ann": None}, "it is not judged"
    await finish(store, "judge")
    assert await silent(store) == samples_at | {"ann": 80.0}, "its answer may be running"
    await store.put_session(session("ann", "another", last_seen_at=70.0, closed_at=90.0))
    assert await silent(store) == samples_at | {"ann": 70.0}


async def test_what_is_judged_and_not_credited_is_on_its_way(store: SqlStore) -> None:
    await says(store, "s", 3, 5.0)
    (held,) = await store.lessons.lease("judge", limit=1, ttl_s=60.0)
    verdict = Verdict(outcome="scored", score=-1)
    facts: dict[str, Any] = {"session": "s", "index": 3, "num_evidence": 1, "judged_at": 5.0}
    await store.lessons.put_judgement(held, Judgement(**facts, judge="rules", prompt_version="1", verdict=verdict))
    assert await silent(store) == {"local": None}
    await finish(store, "credit")
    assert await silent(store) == {"local": 5.0}


async def test_nobody_speaks_in_an_environment(store: SqlStore) -> None:
    attempt = Episode(id="e", environment="terminal", task="t", group="g", attempt=0, group_size=1)
    await store.lessons.put_episode(attempt)
    await store.lessons.put_outcome(Outcome(episode="e", ended_at=80.0, reward=1.0))
    await store.put_session(session("local", "at-work", episode=attempt, last_seen_at=80.0, closed_at=80.0))
    await put_samples(store, [sample(0, id="env", line="env:terminal", session="at-work")])
    assert await silent(store) == {"local": 1.0, "env:terminal": None}, "nor is it the owner's"
    await says(store, "at-work", 1, 90.0)
    assert (await silent(store))["local"] == 1.0


def test_whose_turn_it_is() -> None:
    order = [
        waits("new", 0.0, since=90.0),
        waits("new and later", 0.0, since=91.0),
        waits("long ago", 1000.0, since=95.0),
        waits("a doubt and something new", 1001.0, doubted=1, since=1.0),
        waits("just now", 999.0 + DOUBT_S, since=2.0),
        waits("in doubt", 1000.0, doubted=2, since=3.0),
        waits("at last after it", 1001.0 + DOUBT_S, since=4.0),
    ]
    turns = [each.turn for each in order]
    assert turns == sorted(set(turns))


async def test_lines_wait_in_the_order_of_their_last_steps(store: SqlStore) -> None:
    lessons = store.lessons
    for line in ("ann", "bob"):
        made = [sample(i, id=f"{line}/{i}", line=line, session=f"of-{line}", created_at=50.0) for i in (0, 1, 2)]
        await put_samples(store, made)

    async def take(line: str, number: int, planned_at: float, *indexes: int) -> None:
        ids = tuple(f"{line}/{index}" for index in indexes)
        step = replace(STEP, line=line, number=number, planned_at=planned_at, sample_ids=ids, replayed_ids=())
        await lessons.plan_step(step)
        await lessons.finish_step(replace(step, state="discarded", reason="nan"), None)

    async def found() -> list[tuple[str, int, float]]:
        return [(each.line, each.num_doubted, each.last_step_at) for each in await lessons.waiting()]

    await take("ann", 1, 100.0, 0)
    assert await found() == [("local", 0, 0.0), ("bob", 0, 0.0), ("ann", 0, 100.0)]
    await take("bob", 1, 200.0, 0)
    await take("ann", 2, 300.0, 1, 2)
    assert await found() == [("local", 0, 0.0), ("bob", 0, 200.0), ("ann", 2, 300.0)]
    await take("bob", 2, 301.0 + DOUBT_S, 1)
    assert await found() == [("local", 0, 0.0), ("ann", 2, 300.0), ("bob", 0, 301.0 + DOUBT_S)]

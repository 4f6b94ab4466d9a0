"""What a release looks back at; and what becomes of the samples of a version that is rejected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.store import SqlStore
from openclaw_rl.types import (
    CALLED_AGAIN,
    FINDING,
    Completion,
    Feedback,
    Judgement,
    Message,
    Skip,
    Step,
    ToolCall,
    Turn,
    Verdict,
    Version,
    VersionSpan,
    Vote,
)
from tests.factories.orders import sample
from tests.factories.stored import put_samples, turn_of
from tests.factories.weights import folder_ref
from tests.stores import open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        yield opened


def said(index: int, label: str = "v1", **changes: Any) -> Turn:
    made = turn_of(sample(index))
    completion = replace(made.completion, version_spans=(VersionSpan(label, 0, len(made.completion.token_ids)),))
    return replace(
        made, **{"created_at": 10.0 + index, "finished_at": 10.5 + index, "completion": completion, **changes}
    )


async def replayed(store: SqlStore, **changes: Any) -> list[tuple[str, int | None]]:
    wanted: dict[str, Any] = {"model": "tiny", "limit": 8, "max_tokens": 1024, **changes}
    return [(one.id, one.score) for one in await store.lessons.replayed_turns("local", **wanted)]


async def test_the_last_turns_are_replayed_as_they_were(store: SqlStore) -> None:
    await put_samples(store, [sample(0)])
    for index in (1, 2):
        await store.put_turn(said(index))
    assert await replayed(store) == [("s.2", None), ("s.1", None), ("s.0", -1)]
    assert await replayed(store, limit=1) == [("s.2", None)]
    (first,) = await store.lessons.replayed_turns("local", model="tiny", limit=1, max_tokens=1024)
    turn = said(2)
    assert (first.prompt_ids, first.response_ids) == (turn.prompt_ids, turn.completion.token_ids)
    assert first.text == turn.messages[-1].content
    assert await replayed(store, model="another") == []
    assert await replayed(store, max_tokens=14) == [("s.0", -1)], "the others are longer"
    assert await store.lessons.replayed_turns("ann", model="tiny", limit=8, max_tokens=1024) == []


async def test_what_was_opted_out_of_is_not_replayed(store: SqlStore) -> None:
    await put_samples(store, [sample(0)])
    await store.put_turn(said(1, kind="side"))
    for index, reason in enumerate((Skip.OPTED_OUT, Skip.REDACTED, Skip.ENGINE_LOST, Skip.TRUNCATED), start=2):
        await store.put_turn(said(index, skip=reason))
    assert await replayed(store) == [("s.5", None), ("s.0", -1)]
    session = await store.lessons.get_session("s")
    assert session is not None
    await store.put_session(replace(session, opted_out=True))
    assert await replayed(store) == []


async def served(store: SqlStore, label: str, since: float = 0.0, limit: int = 9) -> list[tuple[bool, int | None]]:
    return [
        (one.failed, one.score) for one in await store.lessons.served_turns("local", label, since=since, limit=limit)
    ]


async def test_what_a_version_served(store: SqlStore) -> None:
    await put_samples(store, [sample(0)])
    session = await store.lessons.get_session("s")
    assert session is not None
    await store.put_session(replace(session, last_seen_at=99.0))
    store.lessons.woken("watch").clear()
    await store.put_turn(said(1))
    assert store.lessons.woken("watch").is_set(), "who watches is woken"
    ended = {"finish_reason": "stop", "version_spans": (VersionSpan("v1", 0, 1),)}
    await store.put_turn(said(2, completion=Completion(token_ids=(2,), logprobs=(0.0,), **ended)))  # type: ignore[arg-type]
    nothing = Completion(token_ids=(), logprobs=(), finish_reason="error", version_spans=())
    await store.put_turn(said(3, completion=nothing, skip=Skip.ENGINE_FAILED))
    await store.put_turn(said(4, skip=Skip.ABORTED))
    await store.put_turn(said(5, "v1.ann"))
    await store.put_turn(said(6, kind="side"))
    await store.put_turn(said(7, skip=Skip.ENGINE_LOST))
    await store.put_turn(said(8, completion=nothing, skip=Skip.ENGINE_LOST))
    assert await served(store, "v0") == [(False, -1)]
    assert await served(store, "v1") == [(False, None), (True, None)], "nobody knows who answered nothing"
    assert await served(store, "v1", since=5.0) == [(False, None), (True, None), (True, None)]
    assert await served(store, "v1", since=11.5) == [(True, None), (True, None)]
    assert await served(store, "v1", limit=1) == [(True, None)]
    (first, _) = await store.lessons.served_turns("local", "v1", since=0.0, limit=9)
    assert first.token_ids == said(1).completion.token_ids


async def test_an_answer_that_calls_a_tool_again(store: SqlStore) -> None:
    await put_samples(store, [sample(0)])
    call = Message(role="assistant", tool_calls=(ToolCall(id="c", name="shell", arguments="{}"),))
    found = Vote(question="score", score=-1, raw=f"{FINDING}shell{CALLED_AGAIN}")
    judged: list[tuple[Message | None, Vote | None]] = [
        (None, found),
        (call, None),
        (call, Vote(question="score", score=-1, raw=f"they wrote: shell{CALLED_AGAIN}")),
        (call, found),
    ]
    for index, (answer, vote) in enumerate(judged, start=1):
        turn = said(index)
        await store.put_turn(turn if answer is None else replace(turn, message=answer))
        if vote is not None:
            await judge(store, index, vote)
    turns = await store.lessons.served_turns("local", "v1", since=0.0, limit=9)
    assert [one.repeats_call for one in turns] == [None, None, False, True]
    await judge(store, 4, Vote(question="score", score=1, raw="explicit feedback: +1"), num_evidence=2)
    turns = await store.lessons.served_turns("local", "v1", since=0.0, limit=9)
    assert (turns[-1].repeats_call, turns[-1].score) == (False, 1), "the newest judgement holds"


async def judge(store: SqlStore, index: int, vote: Vote, *, num_evidence: int = 1) -> None:
    said_after = Feedback(session="s", index=index, user="local", given_at=float(num_evidence), score=None, text="hm")
    await store.put_feedback(said_after)
    (held,) = await store.lessons.lease("judge", limit=1, ttl_s=60.0)
    verdict = Verdict(outcome="scored", score=vote.score, votes=(vote,))
    facts: dict[str, Any] = {"session": "s", "index": index, "num_evidence": num_evidence, "judged_at": 1.0}
    assert await store.lessons.put_judgement(held, Judgement(**facts, judge="j", prompt_version="1", verdict=verdict))


STEP = Step(
    line="local", number=1, state="planned", planned_at=5.0, seed=3, parent=0, sample_ids=(sample(0).id, sample(1).id)
)
VERSION = Version(line="local", number=1, parent=0, state="candidate", created_at=6.0, weights=folder_ref("/v1", "ab"))


async def reject(store: SqlStore, step: Step) -> None:
    await store.lessons.plan_step(step)
    done = replace(step, state="done", finished_at=6.0)
    assert await store.lessons.finish_step(done, replace(VERSION, number=step.number))
    await store.lessons.set_version_state("local", step.number, "rejected", reason="mad")


async def test_samples_of_a_rejected_version_return_once_and_are_tried_alone(store: SqlStore) -> None:
    await put_samples(store, [sample(0), sample(1), sample(2)])
    await reject(store, STEP)
    assert sorted(await store.lessons.doubted_samples("local")) == sorted(STEP.sample_ids)
    assert [one.num_samples for one in await store.lessons.waiting()] == [3]
    await reject(store, replace(STEP, number=2, sample_ids=(sample(0).id,)))
    assert await store.lessons.doubted_samples("local") == [sample(1).id], "alone it was the reason"
    await reject(store, replace(STEP, number=3, sample_ids=(sample(2).id,), replayed_ids=("old",)))
    assert sorted(await store.lessons.doubted_samples("local")) == sorted([sample(1).id, sample(2).id])


async def test_samples_of_a_version_that_goes_live_or_back_stay_with_it(store: SqlStore) -> None:
    await put_samples(store, [sample(0), sample(1)])
    await store.lessons.plan_step(STEP)
    await store.lessons.finish_step(replace(STEP, state="done", finished_at=6.0), VERSION)
    await store.lessons.set_version_state("local", 1, "live")
    await store.lessons.set_version_state("local", 1, "rolled_back", reason="bad")
    assert await store.lessons.waiting() == []

"""A data directory of an earlier release opens, keeps every row, and learning goes on in it.

`tests/data/stores/schema-8.sqlite3.gz` was written by the last release with schema version 8, and its process was
killed while it held a lease: three sessions (one deleted before, so that the order of commits has a gap), turns that
share with their parents, judgements, credits, samples, steps, a version in a folder and one whose files are gone.
"""

from __future__ import annotations

import gzip
import sqlite3
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION
from openclaw_rl.types import (
    TRAINING_PAUSED,
    Credit,
    Judgement,
    Lease,
    Message,
    NextState,
    Session,
    Skip,
    Verdict,
    WeightsRef,
)

OLD = Path(__file__).parents[2] / "data" / "stores" / "schema-8.sqlite3.gz"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "store.sqlite3").write_bytes(gzip.decompress(OLD.read_bytes()))
    return tmp_path


def rows_of(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, with its number."""
    with sqlite3.connect(directory / "store.sqlite3") as connection:
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {
            name: [dict(row) for row in connection.execute(f"SELECT rowid AS number, * FROM {name}")] for name in names
        }
    connection.close()
    return found


async def migrated(directory: Path) -> None:
    async with await SqliteStore.open(directory) as store:
        assert (store.recovery.schema_from, store.recovery.schema_to) == (8, SCHEMA_VERSION)


async def test_every_row_is_kept_as_it_was(directory: Path) -> None:
    before = rows_of(directory)
    await migrated(directory)
    after = rows_of(directory)
    assert after.pop("episode") == []
    for version in before["version"]:
        path = version.pop("path")
        version["weights"] = f"file:{path.replace(' ', '%20')}" if path else None
    for state in before["next_state"]:
        state["seq"] = state["number"]
    for task in before["task"]:
        task["owner"] = "local:" if (task["session"], task["index"], task["stage"]) == ("a", 3, "judge") else ""
    for session in before["session"]:
        session |= {"episode": None, "closed_seq": None if session["closed_at"] is None else 1}
    for turn in before["turn"]:
        turn["retrievable"] = True
    for sample in before["sample"]:
        sample["response_ids"] = None
    for key in before["api_key"]:
        key["terms"] = "{}"
    assert after["meta"].pop()["name"] == "closed_seq"
    for judgement in before["judgement"]:
        judgement["reward"] = None
    before["meta"][0]["value"] = str(SCHEMA_VERSION)
    assert before["meta"][0]["name"] == "schema_version"
    number = "number"  # both a row's and a step's, so the latter hides the former
    assert [row[number] for row in before["step"]] == [1, 2, 3]
    for name, rows in before.items():
        assert after[name] == rows, name
    assert set(after) == set(before)
    assert [state["seq"] for state in after["next_state"]] == [1, 3, 4, 5, 6], "the gap stays"


async def test_turns_are_whole_and_versions_are_references(directory: Path) -> None:
    await migrated(directory)
    reader = StoreReader.open(directory)
    turns = reader.turns("a")
    assert [turn.parent for turn in turns] == [None, 0, 1, 2, 3]
    assert all(after.prompt_ids[: len(turn.prompt_ids)] == turn.prompt_ids for turn, after in pairwise(turns))
    side, aborted = reader.turns("c")
    assert (side.label, side.tools[0].name, aborted.skip) == ("cron", "ls", Skip.ABORTED)
    assert side.completion.top_logprobs is not None
    first, second = reader.versions("ann")
    assert first.weights == WeightsRef.of_folder(Path("/srv/my data/v1/weights"), "1" * 64)
    assert (first.folder, first.state, first.was_live) == (Path("/srv/my data/v1/weights"), "live", True)
    assert (second.weights, second.state, second.reason) == (None, "rejected", "drift")
    (planned,) = reader.planned_steps()
    assert [sample.id for sample in reader.samples_named([*planned.sample_ids, *planned.replayed_ids])] == [
        "a.1",
        "a.0",
    ]
    keys = reader.keys()
    assert [key.id for key in keys if key.revoked_at is None] == ["k-1"]
    assert reader.flag(TRAINING_PAUSED) == "a disk that is full"
    assert len(reader.judgements("a")) == 3


async def test_a_cursor_of_the_earlier_release_goes_on_where_it_stood(directory: Path) -> None:
    async with await SqliteStore.open(directory) as store:
        cursor = await store.lessons.flag("test.cursor")
        assert cursor is not None
        found, cursor = await store.settled_turns("ann", cursor, limit=10)
        assert found == ["a.2", "a.3", "a.4"], "the first two were read before"
        await store.put_session(Session(id="new", user="ann", client="curl", opened_at=1.0, last_seen_at=1.0))
        (turn,) = [one for one in await store.lessons.turns("a") if one.index == 0]
        await store.put_turn(replace(turn, session="new"))
        said = (Message(role="user", content="thanks"),)
        await store.put_next_state(NextState(session="new", index=0, arrived_at=time.time(), messages=said))
        assert (await store.settled_turns("ann", cursor, limit=10))[0] == ["new.0"]
    assert max(state["seq"] for state in rows_of(directory)["next_state"]) == 7


def judged(held: Lease) -> Judgement:
    return Judgement(
        session=held.session,
        index=held.index,
        num_evidence=held.num_evidence,
        judge="rules",
        prompt_version="rules-2",
        judged_at=time.time(),
        verdict=Verdict(outcome="scored", score=1),
    )


async def test_work_that_waited_is_leased_and_learning_goes_on(directory: Path) -> None:
    async with await SqliteStore.open(directory) as store:
        lessons = store.lessons
        assert [held.index for held in await lessons.lease("judge", limit=10, ttl_s=60.0)] == [4], "tried once before"
        assert await lessons.release_earlier() == 1, "what the process that was killed had leased"
        (held,) = await lessons.lease("judge", limit=10, ttl_s=60.0)
        assert (held.index, held.token) == (3, 2)
        (waiting,) = await lessons.lease("credit", limit=10, ttl_s=60.0)
        assert (waiting.index, waiting.num_evidence) == (2, 1)
        assert await lessons.put_judgement(held, judged(held))
        credit = Credit(
            session="a", index=2, num_evidence=1, rule="binary", credited_at=time.time(), reward=1.0, skip=Skip.NEUTRAL
        )
        assert await lessons.put_credit(waiting, credit)
        (following,) = await lessons.lease("credit", limit=10, ttl_s=60.0)
        assert (following.index, following.num_evidence) == (3, 1), "its judgement made the task"
        (planned,) = await lessons.planned_steps()
        assert (planned.number, planned.parent) == (3, 1)
        assert (await lessons.baseline("ann", "main")).count == 2

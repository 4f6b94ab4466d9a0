"""Whose a row is never changes: of every table that says it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, insert, select

from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqlStore
from openclaw_rl.store.sql import schema
from openclaw_rl.store.sql.upsert import upsert
from openclaw_rl.types import ApiKey, Feedback
from tests.factories.turns import make_session, make_turn
from tests.stores import ask, open_store

OWNED = [table for table in schema.metadata.sorted_tables if {"user", "line"} & set(table.columns.keys())]
VALUES = {"TEXT": "x", "DOUBLE": 1.0, "INTEGER": 1, "BOOLEAN": False, "BLOB": b"x"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        yield opened


def row_of(table: Any, owner: str) -> dict[str, Any]:
    """A row that differs from any other in nothing but its owner."""
    return {
        column.name: owner if column.name in ("user", "line") else VALUES[str(column.type).split("(")[0].upper()]
        for column in table.columns
    }


def test_there_are_tables_with_owners() -> None:
    assert {table.name for table in OWNED} >= {"session", "api_key", "feedback", "sample", "step", "version"}


@pytest.mark.parametrize("table", OWNED, ids=lambda table: table.name)
def test_an_upsert_changes_neither_an_owner_nor_anything_of_his(table: Any) -> None:
    engine = create_engine("sqlite://")
    schema.metadata.create_all(engine)
    keys = [column.name for column in table.primary_key.columns]
    with engine.begin() as connection:
        connection.execute(insert(table).values(row_of(table, "ann")))
        before = connection.execute(select(table)).all()
        others = {**row_of(table, "bob"), **({"metrics": "y"} if "metrics" in table.columns else {})}
        connection.execute(upsert("sqlite", table, keys).values(others))
        after = connection.execute(select(table)).all()
    assert [row for row in after if "ann" in row] == before
    engine.dispose()


async def test_a_session_of_somebody_else_is_refused_whole_and_alone(store: SqlStore) -> None:
    await store.put_session(make_session("s-1", user="ann", client="curl"))
    puts = [
        store.put_session(make_session("s-2", user="bob")),
        store.put_session(make_session("s-1", user="bob", client="other", opted_out=True)),
        store.put_turn(make_turn(session="s-2")),
    ]
    with pytest.raises(StoreError, match="session s-1 belongs to another user"):
        await puts[1]
    await puts[0]
    await puts[2]
    found = await store.lessons.get_session("s-1")
    assert found == make_session("s-1", user="ann", client="curl")
    assert await store.turn_owner("s-2", 0) == "bob"


async def test_keys_and_feedback_keep_theirs(store: SqlStore, tmp_path: Path) -> None:
    await store.put_key(ApiKey(id="k", user="ann", digest=b"1", created_at=1.0))
    with pytest.raises(StoreError):
        await store.put_key(ApiKey(id="k", user="bob", digest=b"2", created_at=1.0))
    assert [(key.id, key.user) for key in await store.keys()] == [("k", "ann")]
    await store.put_session(make_session())
    await store.put_turn(make_turn())
    for user in ("ann", "bob"):
        await store.put_feedback(Feedback(session="s-1", index=0, user=user, given_at=1.0, score=1))
    assert set(ask(tmp_path, 'SELECT "user" FROM feedback')) == {("ann",), ("bob",)}

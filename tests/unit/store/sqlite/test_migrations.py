"""Older tables to the newest, whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import OperationalError

from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqliteStore
from openclaw_rl.store.sql import schema, steps
from openclaw_rl.store.sqlite.connection import connect_writer
from openclaw_rl.store.sqlite.directory import make_files_private
from openclaw_rl.store.sqlite.migrations import MIGRATIONS, SCHEMA_VERSION, migrate, schema_version
from openclaw_rl.types import WeightsRef
from tests.factories.orders import sample
from tests.factories.stored import mark_trained, put_samples
from tests.factories.turns import make_session
from tests.unit.store.older import make_older


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    return _new(tmp_path)


def _new(directory: Path) -> Connection:
    directory.mkdir(exist_ok=True)
    make_files_private(directory / "store.sqlite3")
    return connect_writer(directory / "store.sqlite3")


def _tables(connection: Connection) -> dict[str, object]:
    """Everything a table is: columns in order, with type, NOT NULL and place in the key; references; indexes."""
    found: dict[str, object] = {}
    with connection.begin():
        inspector = inspect(connection)
        for name in inspector.get_table_names():
            columns = connection.exec_driver_sql(f"PRAGMA table_info({name})").all()
            indexes = [(index["name"], index["column_names"], index["unique"]) for index in inspector.get_indexes(name)]
            references = [
                (key["constrained_columns"], key["referred_table"], key["referred_columns"])
                for key in inspector.get_foreign_keys(name)
            ]
            described = [
                (column, kind.replace(" PRECISION", ""), required, key) for _, column, kind, required, _, key in columns
            ]
            found[name] = (described, sorted(indexes, key=str), sorted(references, key=str))
    return found


def test_the_steps_lead_to_the_tables_of_the_schema(connection: Connection, tmp_path: Path) -> None:
    migrate(connection)
    other = _new(tmp_path / "other")
    with other.begin():
        schema.metadata.create_all(other)
    assert _tables(connection) == _tables(other)


def test_an_empty_file_becomes_a_store_once(connection: Connection) -> None:
    assert migrate(connection) == (0, SCHEMA_VERSION)
    assert migrate(connection) == (SCHEMA_VERSION, SCHEMA_VERSION)


NEXT = {**MIGRATIONS, SCHEMA_VERSION + 1: ("ALTER TABLE session ADD COLUMN mood TEXT", "CREATE TABLE extra (a TEXT)")}


async def test_a_later_step_keeps_the_rows(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await store.put_session(make_session())
    connection = connect_writer(tmp_path / "store.sqlite3")
    assert migrate(connection, NEXT) == (SCHEMA_VERSION, SCHEMA_VERSION + 1)
    with connection.begin():
        assert connection.exec_driver_sql("SELECT id, mood FROM session").one() == ("s-1", None)


def test_a_step_that_fails_halfway_leaves_the_version_before(connection: Connection) -> None:
    migrate(connection)
    before = _tables(connection)
    broken = {**MIGRATIONS, SCHEMA_VERSION + 1: ("CREATE TABLE extra (a TEXT)", "CREATE TABLE session (b TEXT)")}
    with pytest.raises(OperationalError):
        migrate(connection, broken)
    with connection.begin():
        assert schema_version(connection) == SCHEMA_VERSION
    assert _tables(connection) == before
    assert migrate(connection, NEXT) == (SCHEMA_VERSION, SCHEMA_VERSION + 1)


async def test_a_newer_store_is_refused_and_not_touched(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await store.put_session(make_session())
    connection = connect_writer(tmp_path / "store.sqlite3")
    migrate(connection, NEXT)
    connection.close()
    before = (tmp_path / "store.sqlite3").read_bytes()
    newer = rf"version {SCHEMA_VERSION + 1}, this release knows {SCHEMA_VERSION}: upgrade openclaw-rl"
    with pytest.raises(StoreError, match=newer):
        await SqliteStore.open(tmp_path)
    assert (tmp_path / "store.sqlite3").read_bytes() == before


def test_another_programs_database_is_refused(connection: Connection, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "store.sqlite3") as other:
        other.execute("CREATE TABLE meta (name TEXT, value TEXT)")
    other.close()
    with pytest.raises(StoreError, match="not an OpenClaw-RL store"):
        migrate(connection)


def test_rows_of_the_first_steps_get_what_later_steps_have(connection: Connection) -> None:
    """A store of version 4, with a step and its version in it."""
    migrate(connection, {version: MIGRATIONS[version] for version in range(1, 5)})
    with connection.begin():
        connection.exec_driver_sql("INSERT INTO step VALUES ('ann', 1, 'done', 1.0, 2.0, 7, 0, '[\"x\"]', '{}', '')")
        connection.exec_driver_sql(
            "INSERT INTO version VALUES ('ann', 1, 0, 'live', 2.0, '/v1/weights', 'ab', 'null', '')"
        )
    assert migrate(connection) == (4, SCHEMA_VERSION)
    with connection.begin():
        (step,) = steps.line_steps(connection, "ann")
        (version,) = steps.versions(connection, "ann")
        assert steps.waiting(connection) == []
    assert (step.sample_ids, step.replayed_ids, step.num_anchors, step.state) == (("x",), (), 0, "done")
    assert (version.state, version.weights) == ("live", WeightsRef(uri="file:/v1/weights", sha256="ab"))


async def test_samples_of_an_older_store_are_in_no_doubt(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await put_samples(store, [sample(0), sample(1)])
        await mark_trained(store, sample(1).id, step=1)
    make_older(tmp_path, 4)
    async with await SqliteStore.open(tmp_path) as store:
        assert store.recovery.schema_from == 4
        (waiting,) = await store.lessons.waiting()
        assert (waiting.num_samples, waiting.num_doubted) == (1, 0)
        assert await store.lessons.samples_named([sample(1).id]) == [sample(1)]

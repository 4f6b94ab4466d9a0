"""What is true of SQLite only: the settings that durability rests on, and how few statements a batch takes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import OperationalError

from openclaw_rl.store.sql import schema
from openclaw_rl.store.sql.codec import Row
from openclaw_rl.store.sqlite import connection as sqlite
from openclaw_rl.store.sqlite.connection import InsertRows, UpdateRows, connect_reader, connect_writer
from openclaw_rl.store.sqlite.directory import make_files_private
from openclaw_rl.store.sqlite.migrations import migrate


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    make_files_private(tmp_path / "store.sqlite3")
    with sqlite.connect_writer(tmp_path / "store.sqlite3") as opened:
        migrate(opened)
        yield opened


@pytest.fixture
def statements(connection: Connection) -> list[str]:
    """Every statement that is executed from here on."""
    seen: list[str] = []
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.set_trace_callback(seen.append)
    return seen


@pytest.mark.parametrize(
    ("setting", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("wal_autocheckpoint", 0), ("secure_delete", 1)],
)
def test_the_writer_syncs_every_commit_and_checkpoints_only_by_hand(
    connection: Connection, setting: str, value: object
) -> None:
    assert connection.exec_driver_sql(f"PRAGMA {setting}").scalar_one() == value


def _sessions(count: int) -> list[Row]:
    return [
        {
            "id": f"s-{number}",
            "user": "ann",
            "client": "curl",
            "opened_at": 1.0,
            "last_seen_at": 2.0,
            "key": None,
            "closed_at": None,
            "opted_out": False,
            "episode": None,
            "closed_seq": None,
        }
        for number in range(count)
    ]


def test_many_rows_take_few_statements(connection: Connection, statements: list[str]) -> None:
    with connection.begin():
        assert InsertRows(insert(schema.session)).run(connection, _sessions(200)) == (200, [])
    assert len([sql for sql in statements if sql.startswith("INSERT")]) == 4  # 64 + 64 + 64 + 8
    with connection.begin():
        stored = connection.exec_driver_sql("SELECT id FROM session ORDER BY rowid").scalars().all()
    assert stored == [f"s-{number}" for number in range(200)]


def test_an_update_groups_by_value_and_finds_its_rows_by_index(connection: Connection, statements: list[str]) -> None:
    close = UpdateRows(schema.session, "closed_at", ["id"], schema.session.c.closed_at.is_(None))
    with connection.begin():
        InsertRows(insert(schema.session)).run(connection, _sessions(6))
        close.run(connection, [{"id": f"s-{number}", "closed_at": 5.0 + number % 2} for number in range(4)])
    updates = [sql for sql in statements if sql.startswith("UPDATE")]
    assert len(updates) == 2
    with connection.begin():
        stored = connection.exec_driver_sql("SELECT closed_at FROM session ORDER BY rowid").scalars().all()
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {updates[0]}").all()
    assert stored == [5.0, 6.0, 5.0, 6.0, None, None]
    assert not [step for step in plan if "SCAN" in step[3]]


def test_the_log_is_emptied_unless_a_reader_needs_it(connection: Connection, tmp_path: Path) -> None:
    database, wal = tmp_path / "store.sqlite3", tmp_path / "store.sqlite3-wal"
    with sqlite.connect_reader(database, immutable=False) as reader, reader.begin():
        reader.exec_driver_sql("SELECT count(*) FROM session").scalar_one()
        with connection.begin():
            InsertRows(insert(schema.session)).run(connection, _sessions(1))
        assert not sqlite.empty_log(connection, wait=False)
        assert wal.stat().st_size > 0
    assert sqlite.empty_log(connection, wait=False)
    assert wal.stat().st_size == 0


def test_a_sound_database_is_ok_and_a_damaged_one_is_not(connection: Connection, tmp_path: Path) -> None:
    assert sqlite.check(connection) == "ok"
    with connection.begin():
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        connection.exec_driver_sql("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'turn'")
    with sqlite.connect_writer(tmp_path / "store.sqlite3") as other:
        assert sqlite.check(other) != "ok"


def test_a_database_that_was_removed_does_not_begin_anew(tmp_path: Path) -> None:
    with pytest.raises(OperationalError, match="unable to open"):
        sqlite.connect_writer(tmp_path / "store.sqlite3")
    assert not list(tmp_path.iterdir())


def open_elsewhere(directory: Path) -> list[str]:
    """What this process has open that lies, or lay, in files outside a directory: SQLite removes the names of its
    temporary files at once."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return [link for link in links if "etilqs" in link and not link.startswith(str(directory))]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at open files the way Linux shows them")
@pytest.mark.parametrize("connect", [connect_writer, partial(connect_reader, immutable=False)])
def test_a_large_sort_leaves_the_data_directory_alone(tmp_path: Path, connect: Callable[[Path], Connection]) -> None:
    path = tmp_path / "store.sqlite3"
    path.touch()
    connect_writer(path).close()
    count = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 8000)"
    sort = f"{count} SELECT n, randomblob(3000) AS said FROM number ORDER BY said"
    with connect(path) as connection:
        rows = connection.exec_driver_sql(sort)
        rows.fetchone()
        assert open_elsewhere(tmp_path) == []
        rows.close()
    with closing(sqlite3.connect(path)) as plain:
        rows_of_plain = plain.execute(sort)
        rows_of_plain.fetchone()
        assert open_elsewhere(tmp_path), "such a sort takes a file, or this test shows nothing"

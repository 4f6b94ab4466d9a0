"""The writing connection: what it finds when it is opened, and when it empties the log."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError
from openclaw_rl.store.sql.encode import encode_session, encode_turn
from openclaw_rl.store.sqlite.connection import connect_reader
from openclaw_rl.store.sqlite.database import Database
from tests.factories.turns import make_session, make_turn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.sqlite3"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path, checkpoint_bytes=50_000)
    opened.commit([encode_session(make_session())])
    yield opened
    opened.close()


def _grow(database: Database, first: int) -> int:
    """Commit turns until a checkpoint is due; returns the index of the next one."""
    index = first
    while not database.checkpoint_due:
        assert index < first + 50, "the log does not grow"
        database.commit([encode_turn(make_turn(index, text="word " * 1000), None)])
        index += 1
    return index


def test_the_log_is_written_over_after_a_checkpoint_and_grows_while_a_reader_needs_it(
    database: Database, path: Path
) -> None:
    wal = path.with_name("store.sqlite3-wal")
    first = _grow(database, 0)
    database.checkpoint()
    assert not database.checkpoint_due
    length = wal.stat().st_size
    second = _grow(database, first)
    assert wal.stat().st_size <= length + 50_000
    with connect_reader(path, immutable=False) as reader, reader.begin():
        reader.exec_driver_sql("SELECT count(*) FROM turn").scalar_one()
        for _ in range(5):
            database.checkpoint()
            second = _grow(database, second)
        held = wal.stat().st_size
        assert held > length + 100_000
    database.checkpoint()
    _grow(database, second)
    assert wal.stat().st_size == held


def test_a_damaged_database_is_found_after_a_kill_and_named(database: Database, path: Path, tmp_path: Path) -> None:
    """The files of a running writer, copied, are what a killed one leaves; then a page rots."""
    database.checkpoint()
    database.commit([encode_turn(make_turn(), None)])
    left = tmp_path / "left"
    shutil.copytree(path.parent, left)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'api_key'").fetchone()
    connection.close()
    with (left / "store.sqlite3").open("r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\x55" * 4096)
    with pytest.raises(StoreError, match=r"is damaged .* restore a backup"):
        Database(left / "store.sqlite3", checkpoint_bytes=50_000)

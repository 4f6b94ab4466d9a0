"""What rows left behind is zeroed in the file, and nothing else is: every row stays, whatever the shape of its page."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError
from openclaw_rl.store.sqlite.scrub import DatabaseFile, Scrubbing

Rows = list[tuple[str, str, bytes]]


def churn(path: Path, seed: int, *, num: int, page_size: int = 4096, first: int = 0) -> tuple[Rows, list[bytes]]:
    """Rows that come, grow, shrink and go; those that are left, and the marks of those that are gone."""
    dice = random.Random(seed)
    gone: list[bytes] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA secure_delete = ON").fetchone()
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE IF NOT EXISTS said (name TEXT PRIMARY KEY, small TEXT, body BLOB)")
        connection.execute("CREATE INDEX IF NOT EXISTS said_small ON said (small, name)")
        for number in range(first, first + num):
            mark = f"MARK{seed}x{number}-{dice.randrange(10**9)}"
            small, body = (
                mark + "s" * dice.choice((0, 9, 80)),
                mark.encode() + b"b" * dice.choice((1, 60, 700, 900, 1500, 9000)),
            )
            connection.execute("INSERT INTO said VALUES (?, ?, ?)", (mark, small, body))
            if dice.random() < 0.4:
                grown = mark.encode() + b"g" * dice.choice((3, 300, 2500))
                connection.execute("UPDATE said SET body = ? WHERE name = ?", (grown, mark))
            if dice.random() < 0.45:
                (name,) = dice.choice(connection.execute("SELECT name FROM said ORDER BY name").fetchall())
                connection.execute("DELETE FROM said WHERE name = ?", (name,))
                gone.append(name.encode())
        return rows(path), gone


def rows(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute("SELECT * FROM said ORDER BY name").fetchall()


def roots(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [1, *(page for (page,) in connection.execute("SELECT rootpage FROM sqlite_master"))]


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_marks_of_deleted_rows_are_gone_and_all_others_stay(tmp_path: Path, page_size: int) -> None:
    num_left = 0
    for seed in range(4):
        path = tmp_path / f"{seed}.sqlite3"
        kept, gone = churn(path, seed, num=500, page_size=page_size)
        num_left += sum(mark in path.read_bytes() for mark in gone)
        scrubbing = Scrubbing()
        while not scrubbing.go_on(path, roots(path), max_pages=7):
            pass
        data = path.read_bytes()
        assert [mark for mark in gone if mark in data] == []
        assert rows(path) == kept
        assert scrubbing.num_changed > 0
        again = Scrubbing()
        assert again.go_on(path, roots(path), max_pages=10**6)
        assert again.num_changed == 0
    assert num_left > 0 or page_size == 65536, "SQLite left no copies, so this shows nothing"


def test_others_write_between_two_parts(tmp_path: Path) -> None:
    """What was deleted before the first part is gone after the last, however pages change hands meanwhile."""
    path = tmp_path / "store.sqlite3"
    _, gone = churn(path, 1, num=600)
    scrubbing, first = Scrubbing(), 10_000
    while not scrubbing.go_on(path, roots(path), max_pages=20):
        churn(path, 2, num=40, first=first)
        first += 40
    data = path.read_bytes()
    assert first > 10_200, "it took several parts"
    assert [mark for mark in gone if mark in data] == []


def test_a_page_that_reads_wrong_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    churn(path, 3, num=200)
    leaf = max(roots(path)) if len(roots(path)) > 3 else roots(path)[1]
    whole = path.read_bytes()
    for at, value in ((0, b"\x07"), (1, b"\xff\xf0"), (5, b"\x00\x01")):
        start = (leaf - 1) * 4096 + at
        damaged = whole[:start] + value + whole[start + len(value) :]
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="is damaged"):
            Scrubbing().go_on(path, [1, leaf], max_pages=10**6)
        assert path.read_bytes()[(leaf - 1) * 4096 : leaf * 4096] == damaged[(leaf - 1) * 4096 : leaf * 4096]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="no SQLite database"):
        DatabaseFile(path, [1])

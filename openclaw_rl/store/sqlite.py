"""Everything that is true of SQLite only: how it is opened, checkpointed and checked, and how rows go in quickly.

One connection writes, and only it checkpoints. SQLite before 3.51.3 can corrupt a database when two connections
checkpoint and write at one instant (sqlite.org/wal.html#walresetbug); so automatic checkpoints are off, readers are
read-only and never checkpoint, and `directory.WriterLock` keeps a second writer out.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Insert, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import NullPool

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point

SqlValue = str | int | float | bytes | None
Row = Mapping[str, SqlValue]

OLDEST_SQLITE = (3, 32, 0)
"""The first that takes as many parameters in one statement as a batch of rows needs."""

BUSY_TIMEOUT_MS = 5000
"""How long to wait for a reader or for another process's recovery. The writers' lock keeps real contention out."""

MAX_ROWS = 64
"""Rows in one statement. Powers of two up to this make few distinct statements, and all stay prepared."""


def connect_writer(database: Path) -> Connection:
    """The one writing connection. A transaction begins when SQLAlchemy says so, and takes the write lock at once."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old, {needed} is needed: use a newer Python build")

    def connect() -> sqlite3.Connection:
        # `rw`: a database that somebody removed must not silently begin anew.
        raw = sqlite3.connect(_uri(database, "mode=rw"), uri=True, isolation_level=None, check_same_thread=False)
        try:
            raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            raw.execute("PRAGMA foreign_keys = ON")
            (mode,) = raw.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(f"{database} cannot keep a write-ahead log here: put it on a local disk (--data-dir)")
            raw.execute("PRAGMA synchronous = FULL")
            raw.execute("PRAGMA wal_autocheckpoint = 0")
        except BaseException:
            raw.close()
            raise
        return raw

    return _engine(connect, begin="BEGIN IMMEDIATE").connect()


def connect_reader(database: Path, *, immutable: bool) -> Connection:
    """A connection that can only look. `immutable` also takes no lock and leaves no file beside the database."""

    def connect() -> sqlite3.Connection:
        # `mode=ro` alone creates -wal and -shm where there are none; where they are, it must honour them.
        options = "mode=ro&immutable=1" if immutable else "mode=ro"
        raw = sqlite3.connect(_uri(database, options), uri=True, isolation_level=None)
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        raw.execute("PRAGMA query_only = ON")
        return raw

    return _engine(connect, begin="BEGIN").connect()


def checkpoint(connection: Connection, *, wait: bool) -> bool:
    """Move the log into the database and empty it; False if a reader still needs the log, and `wait` is over or off.

    Raises what SQLite raises when the disk fails: then nothing may be acknowledged on this connection any more.
    """
    raw = _raw(connection)
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS if wait else 0}")
    # In two steps: the first copies and syncs without keeping anybody out, so the second has nothing left to copy.
    raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    crash_point("store.in_checkpoint")
    (blocked, _, _) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return not blocked


def check(connection: Connection) -> str:
    """The first thing that is wrong with the structure of the database; "ok" if nothing is."""
    (verdict,) = _raw(connection).execute("PRAGMA quick_check(1)").fetchone()
    return str(verdict).splitlines()[-1]


class InsertRows:
    """An INSERT of many rows as few statements, made from SQLAlchemy's statement for one row.

    The sqlite3 module hands the interpreter lock back and forth for every statement and every row of `executemany`.
    Beside an event loop that is busy each time costs up to the loop's whole round: with rounds of 4 ms, 64 turns
    and their 192 messages took 257 ms by `executemany` and 34 ms this way.
    """

    def __init__(self, statement: Insert) -> None:
        compiled = statement.compile(dialect=sqlite.dialect())
        assert compiled.positiontup is not None
        columns = compiled.positiontup
        self._values = itemgetter(*columns)
        self._group = f"({', '.join('?' * len(columns))})"
        self._before, self._after = str(compiled).split(f"VALUES {self._group}")

    def run(self, connection: Connection, rows: Sequence[Row]) -> int:
        """Insert the rows in order; returns how many were inserted or updated."""
        changed = 0
        for part in _parts(rows):
            groups = ", ".join([self._group] * len(part))
            values = tuple(value for row in part for value in self._values(row))
            changed += connection.exec_driver_sql(f"{self._before}VALUES {groups}{self._after}", values).rowcount
        return changed


class UpdateRows:
    """An UPDATE that gives one column a value in many rows; rows that get the same value share a statement."""

    def __init__(self, table: str, column: str, *, keys: Sequence[str], only_where: str) -> None:
        self._column = column
        self._keys = keys
        self._group = "(" + " AND ".join(f'"{key}" = ?' for key in keys) + ")"
        self._before = f"UPDATE {table} SET {column} = ? WHERE {only_where} AND "  # noqa: S608 - all names are ours

    def run(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Update the rows that are there and that `only_where` admits."""
        by_value: defaultdict[SqlValue, list[Row]] = defaultdict(list)
        for row in rows:
            by_value[row[self._column]].append(row)
        for value, same in by_value.items():
            for part in _parts(same):
                keys = (row[key] for row in part for key in self._keys)
                groups = " OR ".join([self._group] * len(part))
                connection.exec_driver_sql(f"{self._before}({groups})", (value, *keys))


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    while rest := len(rows) - start:
        size = min(MAX_ROWS, 1 << (rest.bit_length() - 1))
        yield rows[start : start + size]
        start += size


def _uri(database: Path, options: str) -> str:
    return f"file:{quote(str(database))}?{options}"


def _raw(connection: Connection) -> sqlite3.Connection:
    """Beneath SQLAlchemy, which would begin a transaction: these pragmas only work outside of one."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def _engine(connect: Callable[[], sqlite3.Connection], *, begin: str) -> Engine:
    # Parameters are conversation text: they must never appear in the text of an error.
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine

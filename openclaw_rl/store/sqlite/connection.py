"""Everything that is true of SQLite only: how it is opened, checkpointed and checked, and how rows go in quickly.

One connection writes, and only it checkpoints. SQLite before 3.51.3 can corrupt a database when two connections
checkpoint and write at one instant (sqlite.org/wal.html#walresetbug); so automatic checkpoints are off, readers are
read-only and never checkpoint, and `directory.WriterLock` keeps a second writer out.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Insert,
    Select,
    Table,
    Update,
    create_engine,
    event,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import NullPool

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store.sql.codec import Row, SqlValue

_DIALECT = sqlite.dialect()

OLDEST_SQLITE = (3, 35, 0)
"""The first that knows RETURNING and DROP COLUMN."""

BUSY_TIMEOUT_MS = 5000
"""How long to wait for a reader or for another process's recovery. The writers' lock keeps real contention out."""

KEPT_LOG_BYTES = 32 * 2**20
"""What a log that grew long behind a slow reader is cut back to."""

IN_MEMORY = "PRAGMA temp_store = MEMORY"
"""Sorts and statement journals hold words of conversations; by default they go to files outside the data directory."""

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
            raw.execute("PRAGMA secure_delete = ON").fetchone()  # nobody deletes who may leave it readable
            raw.execute("PRAGMA wal_autocheckpoint = 0")
            raw.execute(f"PRAGMA journal_size_limit = {KEPT_LOG_BYTES}")
            raw.execute(IN_MEMORY)
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
        raw.execute(IN_MEMORY)
        return raw

    return _engine(connect, begin="BEGIN").connect()


def copy_log(connection: Connection) -> None:
    """Copy the log into the database, as far as no reader is in the way; keeps nobody out.

    A log that was copied whole is written over from its start by the next commit. It is not made shorter: freeing
    its blocks and claiming them again took a third of the time of a checkpoint, which every commit waits for.
    """
    _raw(connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    crash_point("store.in_checkpoint")


def empty_log(connection: Connection, *, wait: bool) -> bool:
    """Copy the whole log into the database and leave none; False if a reader needs it, and `wait` is over or off.

    Raises what SQLite raises when the disk fails: then nothing may be acknowledged on this connection any more.
    """
    raw = _raw(connection)
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS if wait else 0}")
    # In two steps: the first copies and syncs without keeping anybody out, so the second has nothing left to copy.
    copy_log(connection)
    (blocked, _, _) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return not blocked


@contextlib.contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All that is done inside, or nothing.

    Beneath SQLAlchemy, like the statements below: its share was most of what a commit of one turn took of the
    interpreter, and the event loop waits for that.
    """
    with _undone_on_error(connection, "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
        yield


@contextlib.contextmanager
def savepoint(connection: Connection) -> Iterator[None]:
    """A part of a transaction that is taken back alone if it fails."""
    with _undone_on_error(connection, "SAVEPOINT part", "RELEASE part", "ROLLBACK TO part; RELEASE part"):
        yield


@contextlib.contextmanager
def _undone_on_error(connection: Connection, begin: str, end: str, undo: str) -> Iterator[None]:
    raw = _raw(connection)
    raw.execute(begin)
    try:
        yield
    except BaseException:
        if raw.in_transaction:  # a full disk ends it by itself
            for statement in undo.split("; "):
                raw.execute(statement)
        raise
    raw.execute(end)


def roots(connection: Connection) -> list[int]:
    """The first page of every tree."""
    found = _raw(connection).execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")
    return [1, *(page for (page,) in found)]


def check(connection: Connection) -> str:
    """The first thing that is wrong with the structure of the database; "ok" if nothing is."""
    (verdict,) = _raw(connection).execute("PRAGMA quick_check(1)").fetchone()
    return str(verdict).splitlines()[-1]


def integrity(connection: Connection, limit: int = 20) -> list[str]:
    """What is wrong with the database, indexes too; nothing if nothing is."""
    found = [str(line) for (line,) in _raw(connection).execute(f"PRAGMA integrity_check({limit})")]
    return [] if found == ["ok"] else [one for line in found for one in line.splitlines()]


def copy_whole(connection: Connection, target: Path) -> None:
    """All rows as of one moment, written anew into an empty file: without free pages and what is left in unused ones.

    Outside of a transaction.
    """
    raw = _raw(connection)
    raw.execute("PRAGMA query_only = OFF")  # the file stays read-only: it was opened so
    raw.execute("VACUUM INTO ?", (str(target),))


class InsertRows:
    """An INSERT of many rows as few statements, made from SQLAlchemy's statement for one row.

    The sqlite3 module hands the interpreter lock back and forth for every statement and every row of `executemany`.
    Beside an event loop that is busy each time costs up to the loop's whole round: with rounds of 4 ms, 64 turns
    and their 192 messages took 257 ms by `executemany` and 34 ms this way.
    """

    def __init__(self, statement: Insert) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        assert compiled.positiontup is not None
        columns = [name for name in compiled.positiontup if name in statement.table.columns]
        self._values = itemgetter(*columns)
        self._group = f"({', '.join('?' * len(columns))})"
        self._before, self._after = str(compiled).split(f"VALUES {self._group}")
        self._constants = tuple(compiled.params[name] for name in compiled.positiontup[len(columns) :])
        self._returns = " RETURNING " in self._after

    def run(self, connection: Connection, rows: Sequence[Row]) -> tuple[int, list[tuple[Any, ...]]]:
        """Insert the rows in order: how many were inserted or updated, and what was to be returned of these."""
        raw, changed, returned = _raw(connection), 0, []
        for part in _parts(rows):
            groups = ", ".join([self._group] * len(part))
            values = (*(value for row in part for value in self._values(row)), *self._constants)
            cursor = raw.execute(f"{self._before}VALUES {groups}{self._after}", values)
            if self._returns:
                returned += cursor.fetchall()
            changed += cursor.rowcount
        return changed, returned


class UpdateRows:
    """An UPDATE that gives one column a value in many rows; rows that get the same value share a statement."""

    def __init__(self, table: Table, column: str, keys: Sequence[str], only_where: ColumnElement[bool]) -> None:
        self._column = column
        self._keys = keys
        self._group = "(" + " AND ".join(f'"{key}" = ?' for key in keys) + ")"
        where = only_where.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
        self._before = f"UPDATE {table.name} SET {column} = ? WHERE {where} AND "  # noqa: S608 - all names are ours

    def run(self, connection: Connection, rows: Sequence[Row]) -> tuple[int, list[tuple[Any, ...]]]:
        """Update the rows that are there and that `only_where` admits."""
        raw, changed = _raw(connection), 0
        by_value: defaultdict[SqlValue, list[Row]] = defaultdict(list)
        for row in rows:
            by_value[row[self._column]].append(row)
        for value, same in by_value.items():
            for part in _parts(same):
                keys = (row[key] for row in part for key in self._keys)
                groups = " OR ".join([self._group] * len(part))
                changed += raw.execute(f"{self._before}({groups})", (value, *keys)).rowcount
        return changed, []


class OneStatement:
    """A statement with named parameters, compiled once."""

    def __init__(self, statement: Select[Any] | Insert | Update | Delete) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self._text, self._names = str(compiled), compiled.positiontup or []
        self._constants = compiled.params

    def run(self, connection: Connection, values: Row) -> list[tuple[Any, ...]]:
        """The rows that it returns, inside a `transaction`."""
        given = {**self._constants, **values}
        return _raw(connection).execute(self._text, [given[name] for name in self._names]).fetchall()


class SqlitePrepare:
    """`sql.batch.Prepare`, beneath SQLAlchemy."""

    dialect = "sqlite"
    insert = InsertRows
    update = UpdateRows
    one = OneStatement


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

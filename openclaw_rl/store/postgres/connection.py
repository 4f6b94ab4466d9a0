"""Everything that is true of PostgreSQL only: how it is connected to, who may write just now, and what its errors mean.

One process writes at a time, as on SQLite: each transaction that changes rows first takes the store's lock, which
PostgreSQL gives back when the transaction or its connection ends, however it ends. So every query of `sql/` means here
what it means there, numbers are given in the order of commits, and no transaction is ever to be repeated because of
another one. A store is what one schema holds: `…?options=-csearch_path%3DNAME` makes several in one database.

Knows no table.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

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
    make_url,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql.psycopg2 import dialect as positional_dialect
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from openclaw_rl.errors import StoreError
from openclaw_rl.store.postgres.text import adapt
from openclaw_rl.store.sql.codec import Row

SCHEME = "postgresql+psycopg"

CONNECT_S = 5
"""How long a server may take to let us in."""

SILENT_S = 10
"""A server that does not even confirm what it was sent for so long is gone; and nobody waits longer for the lock."""

IDLE_S = 30
"""PostgreSQL ends a transaction in which its owner says nothing for so long: it was stopped, or its machine is."""

MAX_ROWS = 64
"""Rows in one statement. Powers of two up to this make few distinct statements, and all stay prepared."""

_TAKE = text("SELECT pg_advisory_xact_lock(hashtextextended('openclaw-rl:' || current_schema(), 0))")
_DIALECT = positional_dialect(paramstyle="format")  # type: ignore[no-untyped-call]

_REMEDIES = (
    (r"password|authentication failed|no pg_hba.conf entry", "check user and password in store.url"),
    (r"role .* does not exist", "check the user in store.url, or make it with `createuser`"),
    (r"database .* does not exist", "make it with `createdb`, or check the name at the end of store.url"),
    (r"refused|No such file", "start PostgreSQL, or check host and port in store.url"),
    (r"translate host|resolve|not known|Temporary failure in name", "check the host in store.url"),
    (
        r"permission denied|must be owner|no schema has been selected",
        "give this user rights: `GRANT CREATE, USAGE ON SCHEMA … TO …`",
    ),
    (r"read-only", "name the primary server in store.url, not a replica"),
    (r"timeout|timed out", "check that host and port in store.url can be reached from here"),
    (r"No space left|could not extend", "free some space on the database's disk"),
    (r"too many clients|remaining connection slots", "raise max_connections there; each process takes four"),
)


def parse(url: str) -> URL:
    """StoreError for what is no address of a PostgreSQL store, or where the driver is not installed."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"store.url is no database URL; write {SCHEME}://USER@HOST/DATABASE") from None
    if parsed.drivername != SCHEME:
        like = parsed.drivername.startswith("postgres")
        what = (
            f"write {SCHEME}://…" if like else f"leave it out for SQLite in the data directory, or write {SCHEME}://…"
        )
        raise StoreError(f"store.url asks for {parsed.drivername!r}, which no store is kept in: {what}")
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError as error:
        raise StoreError(f"store.url needs the driver psycopg ({error}): pip install 'openclaw-rl[postgres]'") from None
    return parsed


def connect(url: str, *, reads_only: bool = False) -> Connection:
    """A connection of our own. `reads_only`: each transaction is one snapshot, and can change nothing."""
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "application_name": "openclaw-rl",
        "keepalives_idle": SILENT_S,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": SILENT_S * 1000,
    }
    level: Any = "REPEATABLE READ" if reads_only else "READ COMMITTED"
    # Parameters are conversation text: they must never appear in the text of an error.
    engine = create_engine(
        parse(url), poolclass=NullPool, hide_parameters=True, connect_args=options, isolation_level=level
    )
    _prepare_sessions(engine, reads_only=reads_only)
    return engine.connect()


def _prepare_sessions(engine: Engine, *, reads_only: bool) -> None:
    settings = {
        "synchronous_commit": "on",  # on disk when it is acknowledged, whatever the server's default
        "idle_in_transaction_session_timeout": f"{IDLE_S}s",
        "lock_timeout": f"{SILENT_S}s",
        "default_transaction_read_only": "on" if reads_only else "off",
        "client_min_messages": "warning",
    }

    def prepare(raw: Any, _: object) -> None:
        adapt(raw)
        raw.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
        raw.commit()

    event.listen(engine, "connect", prepare)


def take_turn(connection: Connection) -> None:
    """Waits until nobody else writes; the turn ends with the transaction."""
    connection.execute(_TAKE)


def cut(connection: Connection) -> None:
    """Ends a connection that somebody waits on, from another thread: the waiting fails at once."""
    raw = connection.connection.driver_connection
    with (
        contextlib.suppress(Exception),  # it may be closed already, or about to be
        socket.socket(fileno=os.dup(raw.fileno())) as line,  # type: ignore[union-attr]
    ):
        line.shutdown(socket.SHUT_RDWR)


def why(error: BaseException) -> str:
    """What failed, in one line, and what to do where that is known; without SQLAlchemy's words around it."""
    own = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = [line.strip() for line in str(own).splitlines() if line.strip()]
    told = lines[0] if lines else type(own).__name__
    fatal = next((line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line), "")
    told = fatal or told.removeprefix("connection failed: ")
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, str(own), re.IGNORECASE)), "")
    return f"{told}: {remedy}" if remedy else told


@contextlib.contextmanager
def told_of_server(what: str) -> Iterator[None]:
    """What PostgreSQL refuses inside is a StoreError of one sentence."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"{what}: {why(error)}") from error


class InsertMany:
    """An INSERT of many rows as few statements, made from SQLAlchemy's statement for one row."""

    def __init__(self, statement: Insert) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        assert compiled.positiontup is not None
        self._columns = [name for name in compiled.positiontup if name in statement.table.columns]
        self._group = f"({', '.join(['%s'] * len(self._columns))})"
        self._before, self._after = str(compiled).split(f"VALUES {self._group}")
        self._constants = tuple(compiled.params[name] for name in compiled.positiontup[len(self._columns) :])
        self._returns = " RETURNING " in self._after

    def run(self, connection: Connection, rows: Sequence[Row]) -> tuple[int, list[tuple[Any, ...]]]:
        """Insert the rows in order: how many were inserted or updated, and what was to be returned of these."""
        changed, returned = 0, list[tuple[Any, ...]]()
        for part in _parts(rows):
            groups = ", ".join([self._group] * len(part))
            values = (*(row[name] for row in part for name in self._columns), *self._constants)
            result = connection.exec_driver_sql(f"{self._before}VALUES {groups}{self._after}", values)
            changed += result.rowcount
            if self._returns:
                returned += [tuple(row) for row in result]
        return changed, returned


class UpdateMany:
    """An UPDATE that gives one column a value in many rows; rows that get the same value share a statement."""

    def __init__(self, table: Table, column: str, keys: Sequence[str], only_where: ColumnElement[bool]) -> None:
        self._table, self._column, self._keys = table, column, keys
        self._where = only_where

    def run(self, connection: Connection, rows: Sequence[Row]) -> tuple[int, list[tuple[Any, ...]]]:
        """Update the rows that are there and that `only_where` admits."""
        changed = 0
        by_value: dict[Any, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_value.setdefault(row[self._column], []).append(tuple(row[key] for key in self._keys))
        for value, keys in by_value.items():
            which = tuple_(*(self._table.c[key] for key in self._keys)).in_(keys)
            statement = update(self._table).where(self._where, which).values({self._column: value})
            changed += connection.execute(statement).rowcount
        return changed, []


class OneByName:
    """A statement with named parameters, compiled once."""

    def __init__(self, statement: Select[Any] | Insert | Update | Delete) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self._text, self._names = str(compiled), compiled.positiontup or []
        self._constants = compiled.params

    def run(self, connection: Connection, values: Row) -> list[tuple[Any, ...]]:
        """The rows that it returns."""
        given = {**self._constants, **values}
        result = connection.exec_driver_sql(self._text, tuple(given[name] for name in self._names))
        return [tuple(row) for row in result] if result.returns_rows else []


class PostgresPrepare:
    """`sql.batch.Prepare` for psycopg."""

    dialect = "postgresql"
    insert = InsertMany
    update = UpdateMany
    one = OneByName


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    while rest := len(rows) - start:
        size = min(MAX_ROWS, 1 << (rest.bit_length() - 1))
        yield rows[start : start + size]
        start += size

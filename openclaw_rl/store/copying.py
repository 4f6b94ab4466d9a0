"""A whole store from one database to another, either way, and each row compared.

FROM and TO are a data directory (SQLite) or a URL (PostgreSQL). What is read is one snapshot; what is written is one
transaction. Before it ends the target is read back, and each table's count and digest are compared: if they differ,
nothing was copied. Weights, keys in plain and settings are files and stay where they are. Blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select

from openclaw_rl.errors import StoreError
from openclaw_rl.store.postgres.database import GoneSessions, PostgresDatabase
from openclaw_rl.store.postgres.reader import PostgresReader
from openclaw_rl.store.sql import schema
from openclaw_rl.store.sqlite.connection import connect_reader
from openclaw_rl.store.sqlite.damage import told_of
from openclaw_rl.store.sqlite.database import Database
from openclaw_rl.store.sqlite.directory import WriterLock, database_path
from openclaw_rl.store.sqlite.reader import StoreReader

_AT_ONCE = 500
"""Rows that are read and written together."""

_OWN = "schema_version"
"""The row of `meta` that each database has for itself."""

_CHECKPOINT_BYTES = 2**30
_MODULUS = 2**128


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """`digest` is the same for the same rows, in whatever order."""

    name: str
    num_rows: int
    digest: str


def copy_store(source: str, target: str, *, on_table: Callable[[str], None] = lambda _: None) -> list[CopiedTable]:
    """All tables of `source` into `target`, which holds nothing yet. StoreError otherwise, or if a row differs."""
    if source == target:
        raise StoreError(f"{source} cannot be copied onto itself: name another target")
    with _reading(source) as given, _writing(target) as taken:
        _refuse_used(taken, target)
        return [_copied(given, taken, table, on_table) for table in schema.metadata.sorted_tables]


def _copied(given: Connection, taken: Connection, table: Table, on_table: Callable[[str], None]) -> CopiedTable:
    on_table(table.name)
    if table is schema.meta:
        taken.execute(delete(table).where(table.c.name != _OWN))
    read = _Digest()
    stream = _rows(given, table)
    while rows := list(islice(stream, _AT_ONCE)):
        for row in rows:
            read.add(row)
        taken.execute(insert(table), [dict(zip(table.columns.keys(), row, strict=True)) for row in rows])
    written = _Digest()
    for row in _rows(taken, table):
        written.add(row)
    if (read.num_rows, read.value) != (written.num_rows, written.value):
        raise StoreError(
            f"the rows of {table.name} are not the same after they were copied ({read.num_rows} were read, "
            f"{written.num_rows} are there): nothing was copied; `openclaw-rl doctor --deep` examines the source"
        )
    return CopiedTable(name=table.name, num_rows=read.num_rows, digest=f"{read.value:032x}")


class _Digest:
    """A sum of digests: no two databases need to agree on an order."""

    def __init__(self) -> None:
        self.num_rows, self.value = 0, 0

    def add(self, row: tuple[Any, ...]) -> None:
        self.num_rows += 1
        self.value += int.from_bytes(blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest())
        self.value %= _MODULUS


def _rows(connection: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    query = select(table)
    if table is schema.meta:
        query = query.where(table.c.name != _OWN)
    for row in connection.execute(query, execution_options={"yield_per": _AT_ONCE}):
        yield tuple(row)


def _refuse_used(taken: Connection, target: str) -> None:
    for table in schema.metadata.sorted_tables:
        num = taken.scalar(select(func.count()).select_from(table)) if table is not schema.meta else 0
        if num:
            raise StoreError(
                f"{_shown(target)} is not empty ({num} rows in {table.name}): name an empty database or directory"
            )


@contextmanager
def _reading(place: str) -> Iterator[Connection]:
    """One snapshot. Of a directory nobody writes meanwhile, so that nothing that is said is left behind."""
    if "://" in place:
        PostgresReader.open(place)
        database = PostgresDatabase(place, origin="copy", gone=GoneSessions(), reads_only=True)
        database.open(create=False)
        try:
            with database.snapshot() as connection:
                yield connection
        finally:
            database.close()
        return
    directory = Path(place).expanduser()
    StoreReader.open(directory)
    with told_of(directory):
        lock = WriterLock(directory)
    try:
        with connect_reader(database_path(directory), immutable=False) as connection, connection.begin():
            yield connection
    finally:
        lock.release()


@contextmanager
def _writing(place: str) -> Iterator[Connection]:
    """One transaction in a store that is made if there is none."""
    if "://" in place:
        shared = PostgresDatabase(place, origin="copy", gone=GoneSessions())
        shared.open(create=True)
        try:
            with shared.transaction() as connection:
                yield connection
        finally:
            shared.close()
        return
    database = Database(database_path(Path(place).expanduser()), checkpoint_bytes=_CHECKPOINT_BYTES)
    try:
        with database.transaction() as connection:
            yield connection
    finally:
        database.close()


def _shown(place: str) -> str:
    """Without a password."""
    head, at, tail = place.rpartition("@")
    return f"…{at}{tail}" if at and "://" in head else place

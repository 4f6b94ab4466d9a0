"""Stores on the database that a test is run for: SQLite's file in a directory, or a schema of PostgreSQL for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from openclaw_rl.store import SqlStore, open_reader
from openclaw_rl.store.postgres.writer import PostgresStore
from openclaw_rl.store.sql.reader import SqlReader
from openclaw_rl.store.sqlite.writer import SqliteStore
from tests.postgres import Postgres

F = TypeVar("F", bound=Callable[..., Any])

_servers: list[Postgres | None] = [None]


def sqlite_only(test: F) -> F:
    """Of a test in a file that is run for both databases: it is about SQLite's file."""
    vars(test)["sqlite_only"] = True
    return test


@contextmanager
def kept_in(server: Postgres | None) -> Iterator[None]:
    """Stores that are opened meanwhile are kept there; None is SQLite."""
    _servers.append(server)
    try:
        yield
    finally:
        _servers.pop()


def url_of(directory: Path) -> str | None:
    server = _servers[-1]
    if server is None:
        return None
    schema = f"at_{blake2b(str(directory).encode(), digest_size=12).hexdigest()}"
    if not directory.exists():  # as if it had been a file in it
        server.query(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return server.url(schema)


async def open_store(directory: Path, **options: Any) -> SqlStore:
    url = url_of(directory)
    if url is None:
        return await SqliteStore.open(directory, **options)
    return await PostgresStore.open(directory, url, **options)


def read_store(directory: Path) -> SqlReader:
    return open_reader(directory, url_of(directory))


def ask(directory: Path, statement: str) -> list[tuple[Any, ...]]:
    """What the database says to a statement of SQL."""
    return read_store(directory)._ask(lambda connection: [tuple(row) for row in connection.exec_driver_sql(statement)])

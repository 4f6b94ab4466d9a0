"""The durable log on PostgreSQL for those who only look. Blocking.

A connection for each question: whoever looks for long stands in nobody's way, and holds nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

from sqlalchemy import Connection

from openclaw_rl.errors import StoreError
from openclaw_rl.store.postgres.connection import connect, told_of_server
from openclaw_rl.store.postgres.migrations import schema_version
from openclaw_rl.store.sql.reader import SqlReader, asked
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION, refuse_newer

T = TypeVar("T")


class PostgresReader(SqlReader):
    """`protocols.ReadStore` on one PostgreSQL store."""

    def __init__(self, url: str) -> None:
        self._url = url

    @classmethod
    def open(cls, url: str) -> Self:
        """StoreError if there is no store, or one that this release cannot read."""
        reader = cls(url)
        version = reader.schema()
        refuse_newer(version)
        if version == 0:
            raise StoreError("there is no store in the database of store.url: start `openclaw-rl up` once")
        if version < SCHEMA_VERSION:
            raise StoreError("the store is of an older release: start `openclaw-rl up` once to upgrade it")
        return reader

    schema = asked(schema_version)

    def integrity(self) -> list[str]:
        """Nothing: PostgreSQL looks after its own files (data checksums, `pg_amcheck`)."""
        return []

    def _ask(self, query: Callable[[Connection], T]) -> T:
        with told_of_server("the store on PostgreSQL cannot be read"):
            connection = connect(self._url, reads_only=True)
            try:
                with connection.begin():
                    return query(connection)
            finally:
                connection.close()

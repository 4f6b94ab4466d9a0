"""An empty schema to the tables of `sql/schema.py`, and an older store to the newest, under a lock.

A new store is made from the definition itself; its version is SQLite's. What changes after that is a numbered step here
and there, in each database's own words. All steps are one transaction, under the writers' lock: of several processes
that start at once one does it, and the others find it done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, insert, inspect, select, update

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store.postgres.connection import take_turn
from openclaw_rl.store.sql import schema
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION, refuse_newer

MIGRATIONS: Mapping[int, Sequence[str]] = {}
"""The steps since the first version that PostgreSQL stores had."""

_VERSION = "schema_version"


def schema_version(connection: Connection) -> int:
    """The version of this store; 0 where there is none."""
    if not inspect(connection).has_table(schema.meta.name):
        return 0
    stored = connection.scalar(select(schema.meta.c.value).where(schema.meta.c.name == _VERSION))
    if stored is None or not stored.isdigit():
        raise StoreError(f"this schema holds no OpenClaw-RL store ({_VERSION} is {stored!r}): name another database")
    return int(stored)


def migrate(
    connection: Connection, *, newest: int = SCHEMA_VERSION, migrations: Mapping[int, Sequence[str]] = MIGRATIONS
) -> tuple[int, int]:
    """Bring the store to the newest version; returns the version before and after. Idempotent."""
    with connection.begin():
        take_turn(connection)
        before = schema_version(connection)
        refuse_newer(before, newest)
        if before == 0:
            _create(connection, newest)
        elif before < newest:
            for version in range(before + 1, newest + 1):
                for statement in migrations[version]:
                    connection.exec_driver_sql(statement)
                crash_point("store.in_migration")
            stamp = update(schema.meta).where(schema.meta.c.name == _VERSION)
            connection.execute(stamp.values(value=str(newest)))
    return before, newest


def _create(connection: Connection, version: int) -> None:
    schema.metadata.create_all(connection)
    schema.shared.create_all(connection)
    crash_point("store.in_migration")
    values = {_VERSION: str(version), schema.CLOSED: "0"}
    connection.execute(insert(schema.meta), [{"name": name, "value": value} for name, value in values.items()])

"""INSERT … ON CONFLICT for each database: the one thing that SQLAlchemy Core does not say for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

_INSERT: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_once(dialect: str, table: Table) -> Insert:
    """A row whose key is there already changes nothing."""
    statement: Insert = _INSERT[dialect](table).on_conflict_do_nothing()
    return statement


def upsert(
    dialect: str,
    table: Table,
    keys: Sequence[str],
    *,
    changes: Mapping[str, Any] | None = None,
    only_where: ColumnElement[bool] | None = None,
) -> Insert:
    """Insert a row, or change the one with these keys where `only_where` admits it: by default to what is inserted."""
    statement = _INSERT[dialect](table)
    if changes is None:
        changes = {name: statement.excluded[name] for name in table.columns.keys() if name not in keys}  # noqa: SIM118
    result: Insert = statement.on_conflict_do_update(index_elements=list(keys), set_=dict(changes), where=only_where)
    return result


def proposed(dialect: str, table: Table) -> Any:
    """The columns of the row that was to be inserted, for `changes`; the same in every database."""
    return _INSERT[dialect](table).excluded

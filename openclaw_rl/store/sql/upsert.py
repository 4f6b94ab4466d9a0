"""INSERT … ON CONFLICT for each database: the one thing that SQLAlchemy Core does not say for all of them.

A row keeps its owner: one of another owner under the same keys changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Insert, Table, and_
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
    owners = [column for column in table.columns if column.info.get("owner")]
    if changes is None:
        changes = {
            column.name: statement.excluded[column.name]
            for column in table.columns
            if column.name not in keys and column not in owners
        }
    admitted = [column == statement.excluded[column.name] for column in owners]
    admitted += [] if only_where is None else [only_where]
    result: Insert = statement.on_conflict_do_update(
        index_elements=list(keys), set_=dict(changes), where=and_(*admitted) if admitted else None
    )
    return result


def proposed(dialect: str, table: Table) -> Any:
    """The columns of the row that was to be inserted, for `changes`; the same in every database."""
    return _INSERT[dialect](table).excluded

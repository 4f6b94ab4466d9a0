"""The queries are written for any database of SQLAlchemy: PostgreSQL could run each of them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Delete, Insert, Select, Table, Update
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

import openclaw_rl.store.sql
from openclaw_rl.store.sql import schema, tasks
from openclaw_rl.store.sql.batch import Batch

ROOM = Path(openclaw_rl.store.sql.__file__).parent
POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


def test_only_one_place_knows_which_databases_there_are() -> None:
    found: dict[str, set[str]] = {}
    for file in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            for name in (module, *names, *(f"{module}.{name}" for name in names)):
                if name.startswith(("sqlite3", "sqlalchemy.dialects", "openclaw_rl.store.sqlite")):
                    found.setdefault(file.name, set()).add(module or name)
    assert found == {"upsert.py": {"sqlalchemy.dialects"}}


def test_the_tables_can_be_made_in_postgresql() -> None:
    for table in schema.metadata.sorted_tables:
        assert str(CreateTable(table).compile(dialect=POSTGRESQL))
        for index in table.indexes:
            made = str(CreateIndex(index).compile(dialect=POSTGRESQL))
            assert ("WHERE" in made) == (
                index.name in ("task_due", "sample_waiting", "session_episode", "session_closed")
            )


class Compiled:
    """Prepares the statements of a batch as PostgreSQL would read them."""

    dialect = "postgresql"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def insert(self, statement: Insert) -> Any:
        self.texts.append(str(statement.compile(dialect=POSTGRESQL)))

    def update(self, table: Table, column: str, keys: Sequence[str], only_where: ColumnElement[bool]) -> Any:
        self.texts.append(str(only_where.compile(dialect=POSTGRESQL)))

    def one(self, statement: Select[Any] | Insert | Update | Delete) -> Any:
        self.texts.append(str(statement.compile(dialect=POSTGRESQL)))


def test_a_batch_can_be_written_to_postgresql() -> None:
    compiled = Compiled()
    Batch(compiled)
    assert len(compiled.texts) == 23
    assert sum("ON CONFLICT" in text for text in compiled.texts) == 7
    evidence, end = (text for text in compiled.texts if text.startswith("INSERT INTO task"))
    assert "SELECT CAST(" in end
    assert "wanted = (task.wanted + excluded.wanted)" in evidence


def test_evidence_that_comes_together_is_one_row_for_each_turn() -> None:
    """PostgreSQL refuses a statement that touches a row twice."""
    arrived = [("a", 0, 3.0), ("b", 0, 1.0), ("a", 0, 2.0), ("a", 1, 4.0)]
    rows = [(row["session"], row["index"], row["wanted"], row["due_at"]) for row in tasks.evidence_rows(arrived)]
    assert rows == [("a", 0, 2, 2.0), ("b", 0, 1, 1.0), ("a", 1, 1, 4.0)]

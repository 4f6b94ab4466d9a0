"""Every query that a test of the store runs is compiled for PostgreSQL, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import ClauseElement, Engine, event
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

_POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


@pytest.fixture(autouse=True)
def compiled_for_postgresql() -> Iterator[None]:
    """`upsert.py` has PostgreSQL's own ON CONFLICT; `sql/test_dialects.py` compiles it."""

    def compile_it(_: Any, statement: Any, *__: Any) -> None:
        if isinstance(statement, ClauseElement) and not isinstance(statement, SqliteInsert):
            statement.compile(dialect=_POSTGRESQL)

    event.listen(Engine, "before_execute", compile_it)
    yield
    event.remove(Engine, "before_execute", compile_it)

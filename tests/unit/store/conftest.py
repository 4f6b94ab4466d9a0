"""Every test here that opens stores by `tests.stores` is run on both databases; on SQLite every query that it runs is
compiled for PostgreSQL, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import ClauseElement, Engine, event
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

from tests.stores import kept_in

_POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    of_both = hasattr(metafunc.module, "open_store") and not hasattr(metafunc.function, "sqlite_only")
    metafunc.parametrize("database", ["sqlite", "postgresql"] if of_both else ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    with kept_in(None if request.param == "sqlite" else request.getfixturevalue("postgres")):
        yield request.param


@pytest.fixture(autouse=True)
def compiled_for_postgresql(database: str) -> Iterator[None]:
    """`upsert.py` has PostgreSQL's own ON CONFLICT; `sql/test_dialects.py` compiles it."""

    def compile_it(_: Any, statement: Any, *__: Any) -> None:
        if isinstance(statement, ClauseElement) and not isinstance(statement, SqliteInsert):
            statement.compile(dialect=_POSTGRESQL)

    if database != "sqlite":
        yield
        return
    event.listen(Engine, "before_execute", compile_it)
    yield
    event.remove(Engine, "before_execute", compile_it)

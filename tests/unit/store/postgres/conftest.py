"""Two processes on one store, as far as the store can tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.store import PostgresStore
from tests.postgres import Postgres


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.url()


@pytest.fixture
async def two(tmp_path: Path, url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    async with await PostgresStore.open(tmp_path / "a", url) as a, await PostgresStore.open(tmp_path / "b", url) as b:
        yield a, b

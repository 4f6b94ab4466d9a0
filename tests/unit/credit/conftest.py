from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.store import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened

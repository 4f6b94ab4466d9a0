"""Boxes, where this machine can make them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from tests.fakes.boxes import Boxes, boxes_of, make_image, sandbox_or_skip


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapSandbox:
    return sandbox_or_skip(tmp_path_factory.mktemp("scratch"))


@pytest_asyncio.fixture
async def boxes(sandbox: BubblewrapSandbox) -> AsyncIterator[Boxes]:
    async with boxes_of(sandbox) as opened:
        yield opened


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image(tmp_path_factory.mktemp("image") / "root")

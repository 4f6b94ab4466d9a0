"""A box for whoever means harm, another beside it, and a secret here that neither may ever say."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from tests.fakes.boxes import at_rest, nothing_is_left, sandbox_or_skip
from tests.faults.boxes.probe import SECRET, SECRET_VARIABLE, Probe


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="session")
def sandbox(scratch: Path) -> Iterator[BubblewrapSandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET_VARIABLE, SECRET)  # before anything is started that could hand it on
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))  # as it is nearly everywhere
        yield sandbox_or_skip(scratch)


@pytest_asyncio.fixture
async def probe(sandbox: BubblewrapSandbox, scratch: Path, tmp_path: Path) -> AsyncIterator[Probe]:
    """Whatever it did, its neighbour works, nothing of it is left, and what is ours is as it was."""
    before = await at_rest(sandbox)
    folders = sorted(os.listdir(scratch))
    async with Probe(sandbox, tmp_path) as made:
        yield made
    await nothing_is_left(sandbox, before)
    assert sorted(os.listdir(scratch)) == folders
    assert made.secret_file.read_text() == SECRET

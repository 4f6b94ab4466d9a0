"""Boxes, where this machine can make them, and attempts at tasks in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.tasks.harbor.attempt import HarborAttempt
from openclaw_rl.envs.tasks.harbor.directory import read_task
from openclaw_rl.envs.tasks.harbor.images import Images
from tests.fakes.boxes import Boxes, boxes_of, make_image, sandbox_or_skip
from tests.fakes.harbor_tasks import write_task


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapSandbox:
    return sandbox_or_skip(tmp_path_factory.mktemp("scratch"))


@pytest_asyncio.fixture
async def boxes(sandbox: BubblewrapSandbox) -> AsyncIterator[Boxes]:
    async with boxes_of(sandbox) as opened:
        yield opened


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the image `small:1`."""
    return make_image(tmp_path_factory.mktemp("image") / "root")


@pytest.fixture
def cache(tmp_path: Path, root: Path) -> Path:
    """Where images are kept, with `small:1` among them."""
    home = tmp_path / "cache" / "images" / "small_1"
    home.mkdir(parents=True)
    (home / "root").symlink_to(root)
    (home / "config.json").write_text('{"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "WorkingDir": "/work"}')
    return tmp_path / "cache"


@pytest.fixture
def images(sandbox: BubblewrapSandbox, cache: Path) -> Images:
    return Images(sandbox, cache)


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Begins attempts at tasks that are written for it; all are closed at the end."""

    sandbox: Sandbox
    images: Images
    folder: Path
    stack: AsyncExitStack

    async def begin(self, files: Mapping[str, str | None], *, name: str = "task") -> HarborAttempt:
        task = read_task(write_task(self.folder / name, files))
        scratch = self.folder / "attempts"
        attempt = HarborAttempt(task, sandbox=self.sandbox, images=self.images, scratch=scratch)
        self.stack.push_async_callback(attempt.close)
        await attempt.prepare()
        await attempt.start(gateway="", programs={})
        return attempt


@pytest_asyncio.fixture
async def attempts(sandbox: BubblewrapSandbox, images: Images, tmp_path: Path) -> AsyncIterator[Attempts]:
    async with AsyncExitStack() as stack:
        yield Attempts(sandbox=sandbox, images=images, folder=tmp_path, stack=stack)

"""Real boxes for tests: opened on demand, all closed at the end; and what is left of them on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapBox, BubblewrapSandbox
from openclaw_rl.envs.sandbox.warden.cgroup import PREFIX, homes_here

HAS_PYTHON = Path("/usr/bin/python3").exists()
needs_python = pytest.mark.skipif(not HAS_PYTHON, reason="the boxes have no Python: this machine has none in /usr")


def sandbox_or_skip(scratch: Path) -> BubblewrapSandbox:
    sandbox = BubblewrapSandbox(scratch)
    if reason := sandbox.lacks():
        assert not _makes_boxes(), f"bubblewrap alone makes a box here, so ours is to blame: {reason}"
        pytest.skip(reason)
    return sandbox


def _makes_boxes() -> bool:
    if (bubblewrap := shutil.which("bwrap")) is None:
        return False
    simplest = (bubblewrap, "--unshare-all", "--ro-bind", "/", "/", "true")
    return subprocess.run(simplest, capture_output=True, check=False).returncode == 0


@dataclass(kw_only=True)
class Boxes:
    """Opens boxes."""

    sandbox: BubblewrapSandbox
    opened: list[BubblewrapBox] = field(default_factory=list)

    async def open(self, **spec: Any) -> BubblewrapBox:
        box = await self.sandbox.start(BoxSpec(**spec))
        self.opened.append(box)
        return box


@asynccontextmanager
async def boxes_of(sandbox: BubblewrapSandbox) -> AsyncIterator[Boxes]:
    boxes = Boxes(sandbox=sandbox)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(close_all, boxes)
        yield boxes


async def close_all(boxes: Boxes) -> None:
    for box in boxes.opened:
        await box.close()


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What boxes may leave behind, as numbers that are not to grow."""

    processes: int
    cgroups: int
    mounts: int
    descriptors: int
    wardens_descriptors: int

    def exceeds(self, before: Leftovers) -> bool:
        return any(now > then for now, then in zip(astuple(self), astuple(before), strict=True))


def leftovers(sandbox: BubblewrapSandbox) -> Leftovers:
    warden = psutil.Process(sandbox.warden)
    groups = [
        folder
        for home in homes_here().all
        for folder in os.listdir(home)
        if folder.startswith(f"{PREFIX}{sandbox.warden}-")
    ]
    return Leftovers(
        processes=len(warden.children(recursive=True)),
        cgroups=len(groups),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        descriptors=len(os.listdir("/proc/self/fd")),
        wardens_descriptors=warden.num_fds(),
    )


async def at_rest(sandbox: BubblewrapSandbox) -> Leftovers:
    """What there is while there is no box, but a warden."""
    if sandbox.warden is None:
        await (await sandbox.start(BoxSpec())).close()
    return leftovers(sandbox)


async def nothing_is_left(sandbox: BubblewrapSandbox, before: Leftovers) -> None:
    """Soon: the warden still has its last answer in hand when we have read it, as it may have had before."""
    end = time.monotonic() + 20
    while (now := leftovers(sandbox)).exceeds(before):
        assert time.monotonic() < end, f"there was {before}, and is {now}"
        await asyncio.sleep(0.02)


PROGRAMS_OF_AN_IMAGE = (
    *("bash", "sh", "cat", "chmod", "chown", "cp", "ls", "ln", "mkdir"),
    *("mv", "rm", "sleep", "stat", "touch", "id", "test"),
)


def make_image(folder: Path) -> Path:
    """The smallest root that has a shell: a few programs of this machine and the libraries that they need."""
    for name in ("bin", "etc", "old", "tmp", "work"):
        (folder / name).mkdir(parents=True)
    for program in PROGRAMS_OF_AN_IMAGE:
        found = shutil.which(program)
        assert found is not None
        shutil.copy(os.path.realpath(found), folder / "bin" / program)
        for library in _libraries(found):
            target = folder / library.relative_to("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library.resolve(), target)
    (folder / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nme:x:1000:1000::/:/bin/sh\n")
    (folder / "etc" / "issue").write_text("a small image\n")
    (folder / "old" / "file").write_text("of the image\n")
    return folder


def _libraries(program: str) -> Iterator[Path]:
    said = subprocess.run(("ldd", os.path.realpath(program)), capture_output=True, text=True, check=True).stdout
    for word in said.split():
        if word.startswith("/"):
            yield Path(word)

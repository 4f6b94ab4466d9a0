"""Each kind of damage is told in one sentence with its remedy, nothing is begun anew in silence, nothing is changed."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.sqlite.database import Database
from tests.factories.turns import make_conversation, make_session

RESTORE = r"restore a backup"


async def make_store(directory: Path) -> None:
    """A store that was closed in order, with what a server leaves beside it."""
    async with await SqliteStore.open(directory) as store:
        for name in ("s-1", "s-2"):
            await store.put_session(make_session(name))
            for turn in make_conversation(12, session=name, words=60):
                await store.put_turn(turn)
    (directory / "run").mkdir(mode=0o700)
    (directory / "run" / "config.yaml").touch(mode=0o600)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip_pages(path: Path) -> None:
    for page in range(4, path.stat().st_size // 4096, 2):
        overwrite(path, 4096 * page, b"\x55" * 64)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "the first bytes": (lambda path: overwrite(path, 0, b"\xff" * 16), "its first bytes are no database's"),
    "the whole head": (lambda path: overwrite(path, 16, b"\xa5" * 84), "damaged"),
    "pages": (flip_pages, "is damaged"),
    "cut in the middle of a page": (lambda path: os.truncate(path, 10_000), r"10000 of its \d+ bytes are there"),
    "cut at a page": (lambda path: os.truncate(path, 4 * 4096), r"16384 of its \d+ bytes are there"),
    "empty": (
        lambda path: os.truncate(path, 0),
        r"is empty, though a store was here \(see run/config.yaml beside it\)",
    ),
    "missing": (lambda path: path.unlink(), r"is missing, though a store was here \(see run/config.yaml beside it\)"),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_store_is_refused_with_the_remedy_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    damage, told = DAMAGES[name]
    await make_store(tmp_path)
    path = tmp_path / "store.sqlite3"
    damage(path)
    left = path.read_bytes() if path.exists() else None
    with pytest.raises(StoreError, match=told) as refused:
        await SqliteStore.open(tmp_path)
    assert RESTORE in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (path.read_bytes() if path.exists() else None) == left, "whoever repairs it finds it as it was"
    with pytest.raises(StoreError, match=RESTORE):
        StoreReader.open(tmp_path).turns("s-1")


async def test_a_log_without_its_database_is_not_the_beginning_of_another_one(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await store.put_session(make_session())
        log = (tmp_path / "store.sqlite3-wal").read_bytes()
        assert log
    (tmp_path / "store.sqlite3").unlink()
    (tmp_path / "store.sqlite3-wal").write_bytes(log)
    with pytest.raises(StoreError, match="is missing, though a store was here .see store.sqlite3-wal"):
        await SqliteStore.open(tmp_path)
    assert (tmp_path / "store.sqlite3-wal").read_bytes() == log


async def test_bytes_behind_the_end_harm_nobody(tmp_path: Path) -> None:
    await make_store(tmp_path)
    before = StoreReader.open(tmp_path).turns("s-1")
    with (tmp_path / "store.sqlite3").open("ab") as file:
        file.write(os.urandom(10_000))
    assert StoreReader.open(tmp_path).turns("s-1") == before
    async with await SqliteStore.open(tmp_path) as store:
        await store.put_session(make_session("after"))
        assert await store.lessons.turns("s-1") == before
    assert StoreReader.open(tmp_path).turns("s-1") == before


def test_a_directory_that_cannot_be_written_is_told() -> None:
    """As somebody whom the kernel does not let: root may write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data"
        directory.mkdir(mode=0o700)
        Path(name).chmod(0o755)
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            if os.geteuid() == 0:
                os.chown(directory, 65534, 65534)
                os.setuid(65534)
            directory.chmod(0o500)
            try:
                Database(directory / "store.sqlite3", checkpoint_bytes=1)
            except StoreError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        told = os.read(reading, 4096).decode()
        os.close(reading)
    assert "it cannot be written (Permission denied): make it writable for this user" in told


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_full_disk_at_the_start_is_one_sentence(tmp_path: Path, is_new: bool) -> None:
    """A limit on the size of files stands for the full disk."""
    directory = tmp_path / "data"
    if not is_new:
        await make_store(directory)
    command = [sys.executable, "-m", "openclaw_rl", "up", "--dry-run", "--port", "0", "--data-dir", str(directory)]
    limit = (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    start = partial(subprocess.run, command, capture_output=True, text=True, timeout=60)
    done = await asyncio.to_thread(start, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if line]
    assert told.startswith("error: ")
    assert "its disk is full: free some space there" in told or "its disk fails" in told
    if not is_new:
        assert len(StoreReader.open(directory).turns("s-1")) == 12

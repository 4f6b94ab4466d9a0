"""The data directory: private, and written by one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreBusy, StoreError
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.sqlite.directory import WriterLock, make_private
from tests.factories.turns import make_session


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_everything_is_private_under_any_umask(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "data"
    before = os.umask(0)
    try:
        async with await SqliteStore.open(directory) as store:
            await store.put_session(make_session())
            names = {path.name for path in directory.iterdir()}
            assert names == {"store.sqlite3", "store.sqlite3-wal", "store.sqlite3-shm", "writer.lock"}
            assert {_mode(path) for path in directory.iterdir()} == {0o600}
    finally:
        os.umask(before)
    assert _mode(directory) == 0o700


async def test_rights_of_others_are_taken_away(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await store.put_session(make_session())
    tmp_path.chmod(0o775)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    async with await SqliteStore.open(tmp_path):
        assert _mode(tmp_path) == 0o700
        assert {_mode(path) for path in tmp_path.iterdir()} == {0o600}


async def test_a_directory_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError, match="chmod 700"):
        await SqliteStore.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Root gives one away; everybody else meets one of root's."""
    directory = tmp_path if os.geteuid() == 0 else Path("/")
    if os.geteuid() == 0:
        os.chown(directory, 65534, -1)
    owner = directory.stat().st_uid
    with pytest.raises(StoreError, match=f"belongs to user {owner}, this is user {os.geteuid()}"):
        make_private(directory)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(StoreError, match="not a directory"):
        make_private(tmp_path / "data")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file" / "data", Path("/proc/nope")):
        with pytest.raises(StoreError, match=rf"^{directory} cannot be made: .*; choose another .*--data-dir$"):
            make_private(directory)


async def test_a_second_writer_is_refused_and_told_whom_to_stop(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        with pytest.raises(StoreBusy, match=rf"process {os.getpid()} already writes"):
            await SqliteStore.open(tmp_path)
        await store.put_session(make_session())
        script = (
            "import sys, pathlib, openclaw_rl.store.sqlite.directory as directory\n"
            "directory.WriterLock(pathlib.Path(sys.argv[1]))"
        )
        command = [sys.executable, "-c", script, str(tmp_path)]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[4])
        _, said = await process.communicate()
        assert f"process {os.getpid()} already writes".encode() in said
    async with await SqliteStore.open(tmp_path):
        pass
    assert len(StoreReader.open(tmp_path).sessions()) == 1


def test_the_lock_passes_on_when_it_is_released(tmp_path: Path) -> None:
    (tmp_path / "writer.lock").write_text("123456789012345\n")
    lock = WriterLock(tmp_path)
    assert (tmp_path / "writer.lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    WriterLock(tmp_path).release()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "writer.lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        WriterLock(tmp_path)


async def test_a_failed_opening_leaves_no_lock_behind(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").write_text("not a database " * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="is damaged"):
            await SqliteStore.open(tmp_path)

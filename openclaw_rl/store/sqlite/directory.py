"""The data directory: where the files lie, that only their owner can read them, and that one process writes them.

Knows paths, modes and the lock; knows no SQL.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from openclaw_rl.errors import StoreBusy, StoreError

DATABASE = "store.sqlite3"
LOCK = "writer.lock"


def database_path(directory: Path) -> Path:
    """The database of this directory."""
    return directory / DATABASE


def wal_path(database: Path) -> Path:
    """The write-ahead log beside the database: it exists while a writer runs, or after one was killed."""
    return database.with_name(database.name + "-wal")


def make_private(directory: Path) -> None:
    """Create the directory with mode 0700, or take the group's and others' rights away if it is ours."""
    if not directory.exists():
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(directory.parent)
        except OSError as error:
            raise StoreError(
                f"{directory} cannot be made: {error.strerror or error}; choose another directory with --data-dir"
            ) from None
    if not directory.is_dir():
        raise StoreError(f"{directory} is not a directory; choose another with --data-dir")
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise StoreError(
            f"{directory} belongs to user {status.st_uid}, this is user {os.geteuid()}: "
            "run as its owner, or choose another directory with --data-dir"
        )
    if status.st_mode & 0o002:
        raise StoreError(
            f"everyone may write to {directory} (mode {status.st_mode & 0o7777:o}), so what lies in it cannot be "
            f"trusted: look at it, then `chmod 700 {directory}`, or choose another with --data-dir"
        )
    if status.st_mode & 0o077:
        directory.chmod(0o700)


def make_files_private(database: Path) -> None:
    """Create the database with mode 0600 and set this mode on what is there; SQLite gives its other files the same.

    Never opens a file that exists: closing it again would drop the locks that SQLite holds on it in this process.
    """
    for suffix in ("", "-wal", "-shm"):
        path = database.with_name(database.name + suffix)
        if path.exists():
            path.chmod(0o600)
    if not database.exists():
        os.close(os.open(database, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


class WriterLock:
    """The right to write this directory. The kernel takes it back when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(self._file, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreBusy(
                f"process {holder} already writes {directory}: stop it (`kill {holder}`), "
                "or choose another directory with --data-dir"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next writer in."""
        os.close(self._file)


def _sync(directory: Path) -> None:
    """Make the names in a directory survive a power cut, as fsync on a file does not."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)

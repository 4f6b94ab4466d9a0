"""What is wrong with a store's files, in one sentence with the remedy: before they are opened, and when they fail.

Knows what lies in a data directory, the head of a database file, and SQLite's error codes; knows no table.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from openclaw_rl.errors import StoreDamaged, StoreError
from openclaw_rl.store.sqlite.directory import DATABASE, wal_path

RESTORE = "stop the server, see what `openclaw-rl doctor --deep` says, and restore a backup (`openclaw-rl restore`)"

_LEFT_BEHIND = ("run/config.yaml", "versions")
"""Written only once there is a store."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOT_OURS = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def had_store(directory: Path) -> str:
    """The names of what only a store leaves behind, as people read them; empty where there never was one."""
    log = wal_path(directory / DATABASE)
    found = [name for name in _LEFT_BEHIND if (path := directory / name).is_file() or any(path.glob("*"))]
    if log.exists() and log.stat().st_size and not (directory / DATABASE).exists():
        found.append(log.name)
    return " and ".join(found)


def refuse_damaged(database: Path) -> None:
    """StoreDamaged if a store was here and its file is gone or empty, is no database, or ends too early."""
    try:
        with database.open("rb") as file:
            head = file.read(100)
        length = database.stat().st_size
    except FileNotFoundError:
        head, length = b"", 0
    if not length:
        if left := had_store(database.parent):
            what = "is empty" if database.exists() else "is missing"
            raise StoreDamaged(
                f"{database} {what}, though a store was here (see {left} beside it): restore a backup with "
                "`openclaw-rl restore`, or move the directory away to begin anew"
            )
        return
    if head[:16] != b"SQLite format 3\0":
        raise StoreDamaged(f"the store {database} is damaged (its first bytes are no database's): {RESTORE}")
    expected = _length(head)
    log = wal_path(database)
    if length < expected and not (log.exists() and log.stat().st_size):
        raise StoreDamaged(f"the store {database} is damaged ({length} of its {expected} bytes are there): {RESTORE}")


def trailing_bytes(database: Path) -> int:
    """Bytes behind the end of a database; they are no part of it. While there is a log nobody knows where it ends."""
    log = wal_path(database)
    if log.exists() and log.stat().st_size:
        return 0
    with database.open("rb") as file:
        expected = _length(file.read(100))
    return max(0, database.stat().st_size - expected) if expected else 0


def failed(error: BaseException, what: str, otherwise: type[StoreError] = StoreError) -> StoreError:
    """The error to raise: `what` was tried, why it failed, and what to do."""
    kind = StoreDamaged if _code(_own(error)) in _DAMAGED else otherwise
    return kind(f"{what}: {why(error)}")


def why(error: BaseException) -> str:
    """What failed, and what to do, without SQLAlchemy's words around it."""
    error = _own(error)
    code, number = _code(error), error.errno if isinstance(error, OSError) else None
    if code in _DAMAGED:
        return f"it is damaged ({error}): {RESTORE}"
    if code == sqlite3.SQLITE_FULL or number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "its disk is full: free some space there, or choose another directory with --data-dir"
    if code in _NOT_OURS or number in (errno.EROFS, errno.EACCES, errno.EPERM):
        told = error.strerror if isinstance(error, OSError) else error
        return f"it cannot be written ({told}): make it writable for this user, or choose another with --data-dir"
    if code == sqlite3.SQLITE_IOERR or number is not None:
        return f"its disk fails ({error}): free some space or look at the disk"
    return str(error)


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """What the operating system refuses inside is said in one sentence about this path."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {why(error)}") from error


def _own(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _length(head: bytes) -> int:
    """How long the file is by its own account; 0 if an old writer left no account."""
    size = int.from_bytes(head[16:18], "big")
    page_size = 65536 if size == 1 else size
    return page_size * int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0

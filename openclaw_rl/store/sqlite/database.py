"""The one writing connection, from opening to closing, and what happens to it when the disk fails. Blocking.

Fail-stop. After a failed write or fsync nobody knows what the page cache still holds, and the kernel will not say it
twice (usenix.org/conference/atc20/presentation/rebello). So the connection is thrown away and nothing more is
acknowledged until a new one has moved the whole log into the database and emptied it: everything acknowledged before
is then on disk in full, and nothing doubtful lies in front of what comes next. When the disk has space again the next
write finds it so by itself. A turn whose commit failed may turn out to be in the log nevertheless: nobody was promised
it, so it is opened for replacement and a client's retry becomes the turn.

Called from one thread at a time; knows no event loop.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from openclaw_rl.errors import StoreDamaged, StoreError, StoreUnavailable
from openclaw_rl.faults import crash_point
from openclaw_rl.store.sql import lessons
from openclaw_rl.store.sql.batch import Batch, RowStands, WriteResult
from openclaw_rl.store.sql.encode import Write
from openclaw_rl.store.sqlite import connection as sqlite
from openclaw_rl.store.sqlite.damage import RESTORE, failed, refuse_damaged, told_of, why
from openclaw_rl.store.sqlite.directory import WriterLock, make_files_private, make_private, wal_path
from openclaw_rl.store.sqlite.migrations import migrate
from openclaw_rl.store.sqlite.scrub import Scrubbing
from openclaw_rl.types import Recovery

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SCRUBBED = 500
"""Pages that are gone over in one part of erasing; a commit may wait for that. They take a few ms."""

MAX_CHECKED = 2**30
"""A database of up to this many bytes is checked at every start, which takes about half a second; a larger one only
after a kill."""

_DISK_FAULTS = (SQLAlchemyError, sqlite3.Error, OSError)
_RECORD_FAULTS = (RowStands, sqlite3.IntegrityError, sqlite3.DataError, UnicodeError, OverflowError)
"""What one record does to the statement it shares: a turn that is complete, an unknown session, a lone surrogate."""

_PROBED = "store.probed"
"""A flag that says nothing: its row is written to see whether it can be."""

_BATCH = Batch(sqlite.SqlitePrepare())


class Database:
    """Holds the writers' lock while it lives. `recovery` says what was found at the start."""

    def __init__(self, path: Path, *, checkpoint_bytes: int) -> None:
        self.commits = 0
        self.is_failing = False
        """Whether the disk failed, and no commit has succeeded since."""
        self._path = path
        self._wal = wal_path(path)
        self._checkpoint_bytes = checkpoint_bytes
        self._bytes_since_checkpoint = 0
        self._connection: Connection | None = None
        self._doubtful: list[Write] = []
        with told_of(path.parent):
            make_private(path.parent)
            self._lock = WriterLock(path.parent)
        try:
            self.recovery = self._recover()
        except BaseException as error:
            self._discard()
            self._lock.release()
            if isinstance(error, _DISK_FAULTS):
                raise failed(error, f"the store {path} cannot be opened") from error
            raise

    def commit(self, writes: Sequence[Write]) -> list[WriteResult]:
        """Write all in one transaction with one fsync. When it returns, what was not refused is on disk."""
        with self._fail_stop() as connection:
            crash_point("store.before_begin")
            try:
                outcomes = self._transaction(connection, writes, _BATCH.apply)
            except _RECORD_FAULTS:
                outcomes = self._transaction(connection, writes, _apply_each)
        self.commits += 1
        self.is_failing = False
        self._bytes_since_checkpoint += sum(write.size for write in writes)
        crash_point("store.after_commit")
        return outcomes

    def read(self, query: Callable[[Connection], T]) -> T:
        """The answer to a query, after everything that is committed."""
        return self.transact(query)

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Do some work whole or not at all; on disk when it returns."""
        with self.transaction() as connection:
            return work(connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """The same for what is done inside."""
        with self._fail_stop() as connection, connection.begin():
            yield connection

    def probe(self) -> None:
        """Find out by a commit of its own whether a disk that failed can be written again."""
        self.transact(lambda connection: lessons.set_flag(connection, _PROBED, str(self.commits)))
        self.is_failing = False

    @property
    def checkpoint_due(self) -> bool:
        """Whether much was written since the last one."""
        return self._bytes_since_checkpoint >= self._checkpoint_bytes

    def checkpoint(self) -> None:
        """Copy the log into the database. What it holds is on disk already, so a failure here breaks no promise."""
        self._bytes_since_checkpoint = 0
        try:
            with self._fail_stop() as connection:
                sqlite.copy_log(connection)
        except StoreError as error:
            logger.error("checkpoint failed: %s", error)

    def erase(self, scrubbing: Scrubbing) -> bool | None:
        """Go on leaving nothing of what was deleted, neither in the log nor in the database: True when it is done,
        None if a reader is in the way. Takes as long as a checkpoint or two; commits may come in between.
        """
        with self._fail_stop() as connection:
            if not sqlite.empty_log(connection, wait=False):
                return None
            self._bytes_since_checkpoint = 0
            roots = sqlite.roots(connection)
            self._discard()  # pages that it remembers have traces of their own
            done = scrubbing.go_on(self._path, roots, max_pages=MAX_SCRUBBED)
            self._connect()
            return done

    def close(self) -> None:
        """Empty the log, close, and let the next writer in. Failing to empty it only makes the next start longer."""
        if self._connection is not None:
            try:
                sqlite.empty_log(self._connection, wait=False)
            except _DISK_FAULTS as error:
                logger.error("last checkpoint failed, the next start recovers: %s", why(error))
            self._discard()
        self._lock.release()

    def _recover(self) -> Recovery:
        refuse_damaged(self._path)
        make_files_private(self._path)
        wal_bytes = self._wal_bytes()
        connection = self._connect()
        is_checked = wal_bytes or self._path.stat().st_size <= MAX_CHECKED
        if is_checked and (verdict := sqlite.check(connection)) != "ok":
            raise StoreDamaged(f"the store {self._path} is damaged ({verdict}): {RESTORE}")
        before, after = migrate(connection)
        if before != after:
            sqlite.empty_log(connection, wait=False)
        return Recovery(wal_bytes=wal_bytes, schema_from=before, schema_to=after)

    def _connect(self) -> Connection:
        connection = sqlite.connect_writer(self._path)
        try:
            if not sqlite.empty_log(connection, wait=True):
                raise StoreUnavailable(f"another program keeps {self._path} open for reading: end it and try again")
            if self._doubtful:
                with sqlite.transaction(connection):
                    _BATCH.take_back(connection, self._doubtful)
                self._doubtful = []
        except BaseException:
            _close(connection)
            raise
        self._connection = connection
        return connection

    @contextlib.contextmanager
    def _fail_stop(self) -> Iterator[Connection]:
        try:
            yield self._connection or self._connect()
        except StoreError:
            raise
        except Exception as error:
            # Whatever it was: the state of the connection is unknown, and those who wait need an answer.
            self._discard()
            self.is_failing = True
            told = f"the store {self._path} failed, and nothing of this was acknowledged"
            raise StoreUnavailable(f"{told}: {why(error)}") from error

    def _transaction(
        self,
        connection: Connection,
        writes: Sequence[Write],
        work: Callable[[Connection, Sequence[Write]], list[WriteResult]],
    ) -> list[WriteResult]:
        with sqlite.transaction(connection):
            outcomes = work(connection, writes)
            self._doubtful = [write for write, done in zip(writes, outcomes, strict=True) if done is True]
            crash_point("store.before_commit")
        self._doubtful = []
        return outcomes

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection)

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0


def _apply_each(connection: Connection, writes: Sequence[Write]) -> list[WriteResult]:
    return [_apply_alone(connection, write) for write in writes]


def _apply_alone(connection: Connection, write: Write) -> WriteResult:
    try:
        with sqlite.savepoint(connection):
            (outcome,) = _BATCH.apply(connection, [write])
    except _RECORD_FAULTS as error:
        return StoreError(
            f"a {write.op.name.lower()} record was refused ({why(error)}); its session or turn must exist"
        )
    return outcome


def _close(connection: Connection) -> None:
    with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
        connection.close()

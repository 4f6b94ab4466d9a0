"""A connection to a shared store, from opening to closing, and what happens when the server goes away. Blocking.

A connection that failed is thrown away, and the next call makes another one. What people wait for is tried again for
`patience_s`; then `StoreUnavailable`, and nothing of it was acknowledged. A commit whose end was not heard may have
been one: its records are the same when they are written again, and `doubtful` names the sessions that are to be read
anew. What the loops that learn do is not tried again here, they do so themselves.

Called from one thread at a time, except `cut`; knows no event loop.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.faults import crash_point
from openclaw_rl.store.postgres import journal
from openclaw_rl.store.postgres.connection import PostgresPrepare, connect, cut, take_turn, why
from openclaw_rl.store.postgres.migrations import migrate
from openclaw_rl.store.sql import lessons, schema
from openclaw_rl.store.sql.batch import Batch, RowStands, WriteResult
from openclaw_rl.store.sql.encode import Op, Write
from openclaw_rl.types import Recovery

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long an answer waits for a server that went away, before its client hears that it was not stored."""

AGAIN_S = 0.2

_RECORD_FAULTS = (RowStands, IntegrityError, DataError, UnicodeError, OverflowError)
"""What one record does to the statement it shares: a turn that is complete, an unknown session, a lone surrogate."""

_NOT_AWAY = ("55P03", "57014")
"""SQLSTATE: the lock was not to be had in time, and a statement was cancelled."""

_PROBED = "store.probed"
"""A flag that says nothing: its row is written to see whether it can be."""

_BATCH = Batch(PostgresPrepare())


class GoneSessions:
    """Sessions that were deleted, and when this process heard of it: what it began before that is refused.

    Whoever begins an answer reads the journal first, so what it begins after that is a new session of the same name.
    """

    def __init__(self, origin: str = "") -> None:
        self._origin = origin
        self._lock = threading.Lock()
        self._heard: dict[str, float] = {}
        self._seq = 0

    def begin(self, seq: int) -> None:
        self._seq = seq

    def hear(self, changes: Sequence[journal.JournalEntry]) -> None:
        now = time.time()
        with self._lock:
            for change in changes:
                if change.kind == "gone" and change.seq > self._seq:
                    # Of its own it knew at once; of others' clocks it knows nothing.
                    self._heard[change.name] = change.at if change.origin == self._origin else now
            self._seq = max([self._seq, *(change.seq for change in changes)])
            if len(self._heard) > 10_000:
                limit = now - journal.KEPT_S
                self._heard = {name: at for name, at in self._heard.items() if at > limit}

    @property
    def seq(self) -> int:
        return self._seq

    def refuses(self, write: Write) -> bool:
        row = write.row
        heard = self._heard.get(str(row["id"] if write.op is Op.SESSION else row.get("session", "")))
        began = {Op.SESSION: "opened_at", Op.TURN: "created_at", Op.NEXT_STATE: "arrived_at", Op.FEEDBACK: "given_at"}
        return heard is not None and write.op in began and float(row[began[write.op]] or 0.0) < heard


class PostgresDatabase:
    """One connection. `origin` names this process in the journal; `recovery` says what was found at the start."""

    def __init__(self, url: str, *, origin: str, gone: GoneSessions, reads_only: bool = False) -> None:
        self.commits = 0
        self.is_failing = False
        self.doubtful: set[str] = set()
        """Sessions of records whose commit may have been one."""
        self.recovery = Recovery(wal_bytes=0, schema_from=0, schema_to=0)
        self.patience_s = PATIENCE_S
        self._url = url
        self._origin = origin
        self._gone = gone
        self._reads_only = reads_only
        self._connection: Connection | None = None

    def open(self, *, create: bool) -> None:
        """Connects, and brings the tables up to date if that is wished. StoreError in one sentence."""
        try:
            connection = self._connect()
            if create:
                before, after = migrate(connection)
                self.recovery = Recovery(wal_bytes=0, schema_from=before, schema_to=after)
        except SQLAlchemyError as error:
            self._discard()
            raise StoreError(f"the store on PostgreSQL cannot be opened: {why(error)}") from error
        except BaseException:
            self._discard()
            raise

    def commit(self, writes: Sequence[Write]) -> list[WriteResult]:
        """Write all in one transaction. When it returns, what was not refused is on the server's disk."""
        outcomes = self._patiently(lambda connection: self._committed(connection, writes), touched=writes)
        self.commits += 1
        crash_point("store.after_commit")
        return outcomes

    def read(self, query: Callable[[Connection], T]) -> T:
        """The answer to a query, from one snapshot that has everything that is committed."""

        def ask(connection: Connection) -> T:
            with connection.begin():
                return query(connection)

        return self._patiently(ask)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """For a long look."""
        with self._fail_stop() as connection, connection.begin():
            yield connection

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Do some work whole or not at all, while nobody else writes; on disk when it returns."""
        with self.transaction() as connection:
            return work(connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """The same for what is done inside."""
        with self._fail_stop() as connection, connection.begin():
            take_turn(connection)
            yield connection

    def reserve(self, session: str, index: int, count: int) -> int:
        """Numbers for turns. Nothing waits for the disk: who has one waits for its turn's commit, which is later."""

        def work(connection: Connection) -> int:
            with connection.begin():
                connection.execute(text("SET LOCAL synchronous_commit = off"))
                return journal.reserve(connection, session, index, count)

        return self._patiently(work)

    def probe(self) -> None:
        """Find out by a commit of its own whether a server that failed can be written to again."""
        self.transact(lambda connection: lessons.set_flag(connection, _PROBED, str(self.commits)))
        self.is_failing = False

    def vacuum(self) -> None:
        """Leave no deleted row in a table; what its pages, the log and backups still hold is not ours to overwrite."""
        with self._fail_stop() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.autocommit = True
            try:
                tables = (*schema.metadata.sorted_tables, *schema.shared.sorted_tables)
                raw.execute(f"VACUUM (INDEX_CLEANUP ON) {', '.join(table.name for table in tables)}")
            finally:
                raw.autocommit = False

    def cut(self) -> None:
        """Makes whoever waits on this connection fail now; from any thread."""
        if (connection := self._connection) is not None:
            cut(connection)

    def close(self) -> None:
        self._discard()

    def _committed(self, connection: Connection, writes: Sequence[Write]) -> list[WriteResult]:
        crash_point("store.before_begin")
        try:
            return self._transaction(connection, writes, _BATCH.apply)
        except _RECORD_FAULTS:
            return self._transaction(connection, writes, _apply_each)

    def _transaction(
        self,
        connection: Connection,
        writes: Sequence[Write],
        work: Callable[[Connection, Sequence[Write]], list[WriteResult]],
    ) -> list[WriteResult]:
        with connection.begin():
            take_turn(connection)
            self._gone.hear(journal.since(connection, self._gone.seq, only="gone"))
            kept = [write for write in writes if not self._gone.refuses(write)]
            done = iter(work(connection, kept) if kept else [])
            outcomes = [_forgotten(write) if self._gone.refuses(write) else next(done) for write in writes]
            changes = (_change(write) for write, result in zip(writes, outcomes, strict=True) if result is True)
            journal.tell(connection, self._origin, (one for one in changes if one is not None))
            crash_point("store.before_commit")
        return outcomes

    def _patiently(self, work: Callable[[Connection], T], *, touched: Sequence[Write] = ()) -> T:
        """Does what people wait for; again on another connection, for some time, if the one it has is lost."""
        give_up_at = time.monotonic() + (0.0 if self.is_failing else self.patience_s)
        while True:
            try:
                with self._fail_stop() as connection:
                    answer = work(connection)
                self.is_failing = False
                return answer
            except StoreUnavailable as error:
                self.doubtful |= {name for _, name in filter(None, map(_change, touched))}
                if not _is_lost(error.__cause__) or time.monotonic() > give_up_at:
                    self.is_failing = True
                    raise
                time.sleep(AGAIN_S)

    @contextlib.contextmanager
    def _fail_stop(self) -> Iterator[Connection]:
        try:
            yield self._connection or self._connect()
        except StoreError:
            raise
        except Exception as error:
            # Whatever it was: the state of the connection is unknown, and those who wait need an answer.
            self._discard()
            told = "the store on PostgreSQL failed, and nothing of this was acknowledged"
            raise StoreUnavailable(f"{told}: {why(error)}") from error

    def _connect(self) -> Connection:
        self._connection = connect(self._url, reads_only=self._reads_only)
        return self._connection

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, OSError):
                connection.close()


def _is_lost(error: BaseException | None) -> bool:
    """Whether the server is away, and may come back; not so if somebody else only writes for long."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    return getattr(error.orig, "sqlstate", None) not in _NOT_AWAY


def _change(write: Write) -> tuple[journal.Kind, str] | None:
    if write.op in (Op.KEY, Op.REVOKE):
        return "keys", ""
    if write.op is Op.EPISODE:
        return None
    return "session", str(write.row["id" if write.op in (Op.SESSION, Op.CLOSE) else "session"])


def _forgotten(write: Write) -> StoreError:
    return StoreError(f"a {write.op.name.lower()} record was refused: its conversation was forgotten meanwhile")


def _apply_each(connection: Connection, writes: Sequence[Write]) -> list[WriteResult]:
    return [_apply_alone(connection, write) for write in writes]


def _apply_alone(connection: Connection, write: Write) -> WriteResult:
    try:
        with connection.begin_nested():
            (outcome,) = _BATCH.apply(connection, [write])
    except _RECORD_FAULTS as error:
        return StoreError(
            f"a {write.op.name.lower()} record was refused ({why(error)}); its session or turn must exist"
        )
    return outcome

"""The durable log for a process that writes it, on whatever database.

A `put_…` or `mark_…` encodes its record and queues it before it returns; records are written in that order. What it
returns is a future, and awaiting it is the promise: it is done when the record is on disk, and raises
`StoreUnavailable` when it is not. A caller that does not await gives up that knowledge only, not the record.

    consumes      records, as they are put
    produces      rows; one transaction and one fsync for all that queued while the one before was written
    waits for     the database
    woken by      the first record that is put while nothing is queued

One commit task, one thread that touches the database. Cancelling a caller cancels its future, never its record.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import struct
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

from sqlalchemy import Connection

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.protocols import Wakeups
from openclaw_rl.store.learning_log import LearningLog, LocalWakeups
from openclaw_rl.store.sql import encode, queries, rollouts
from openclaw_rl.store.sql.batch import WriteResult
from openclaw_rl.store.sql.encode import Op, Trunk, Write
from openclaw_rl.types import (
    ApiKey,
    Feedback,
    KeyTerms,
    NextState,
    Recovery,
    Session,
    SessionOutline,
    Skip,
    Turn,
    TurnRecord,
    split_turn_id,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSED = "the store is closed; nothing was stored"

MAX_BATCH = 256
"""Records in one transaction: more would make the first of them wait for the last."""

UNHURRIED_S = 0.2
"""How long the mark of a delivered answer may wait for a commit that somebody waits for: alone it is worth no fsync."""

OTHERS_TURN = 2.0
"""While people talk, the thread is theirs for this many times as long as it just worked for what learns."""

QUIET_S = 0.5
"""Nobody talks when nothing was put for so long; then learning catches up at full speed."""

MAX_QUEUED_BYTES = 256 * 2**20

MAX_TRUNKS = 4096
"""Turns whose children find out without a look into the database what they share; about 3 MiB."""


class WritingDatabase(Protocol):
    """A connection that writes. Blocking; called from one thread at a time."""

    recovery: Recovery
    commits: int
    is_failing: bool
    """Whether the last write failed, and none has succeeded since."""

    def commit(self, writes: Sequence[Write]) -> list[WriteResult]: ...
    def read(self, query: Callable[[Connection], T]) -> T: ...
    def transact(self, work: Callable[[Connection], T]) -> T: ...
    def probe(self) -> None: ...
    def close(self) -> None: ...


class SqlStore(ABC):
    """`protocols.WholeStore` but for opening and erasing, which are each database's own."""

    def __init__(
        self,
        database: WritingDatabase,
        thread: ThreadPoolExecutor,
        *,
        commit_window_s: float = 0.0,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        wakeups: Wakeups | None = None,
    ) -> None:
        """`commit_window_s` is how long a commit waits for company; 0: only for the commit before it. Beyond
        `max_queued_bytes` the disk is so far behind that new records are refused."""
        self._database = database
        self._thread = thread
        self._commit_window_s = commit_window_s
        self._max_queued_bytes = max_queued_bytes
        self._queue: deque[tuple[Write, asyncio.Future[None]]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._hurried = False
        self._timer: asyncio.TimerHandle | None = None
        self._trunks: OrderedDict[tuple[str, str, int], Trunk] = OrderedDict()
        self._learning = asyncio.Lock()
        self._last_put_at = -math.inf
        self._owed_s = 0.0
        self._probing = False
        self._wakeups = wakeups or LocalWakeups()
        self.lessons = self._make_lessons()
        """What is learned from the log."""
        self._settled = asyncio.Event()
        self._committer = asyncio.create_task(self._commit_until_closed(), name="store-commit")

    def _make_lessons(self) -> LearningLog:
        return LearningLog(self._learn, at_once=self._transact, on_delete=self._forget, wakeups=self._wakeups)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def recovery(self) -> Recovery:
        """What was found when the store was opened."""
        return self._database.recovery

    @property
    def commits(self) -> int:
        """How many batches were written since the store was opened."""
        return self._database.commits

    async def close(self) -> None:
        """Write what is queued, and let the next writer in. A second call does nothing."""
        if self._closing:
            return
        self._closing = True
        self._hurry()
        await asyncio.gather(self._committer, return_exceptions=True)
        await self._run(self._database.close)
        self._thread.shutdown()

    def put_session(self, session: Session) -> asyncio.Future[None]:
        """Insert a session, or replace all its fields; an episode of its own that is not known yet comes with it."""
        if (episode := session.episode) is not None:
            self._put(lambda: encode.encode_episode(episode))
        return self._put(lambda: encode.encode_session(session))

    def put_turn(self, turn: Turn) -> asyncio.Future[None]:
        """Insert a turn, or replace an aborted attempt at it. A complete turn stays as it is: an aborted attempt
        that comes later is dropped, another complete answer under its name is a `StoreError`.
        """
        key = encode.turn_key(turn.session, -1 if turn.parent is None else turn.parent)
        return self._put(lambda: encode.encode_turn(turn, self._trunks.get(key)))

    def put_next_state(self, state: NextState) -> asyncio.Future[None]:
        """Store what followed a turn; the first one stays."""
        return self._put(lambda: encode.encode_next_state(state))

    def put_feedback(self, feedback: Feedback) -> asyncio.Future[None]:
        """Append feedback; the same one twice is one."""
        return self._put(lambda: encode.encode_feedback(feedback))

    def put_key(self, key: ApiKey) -> asyncio.Future[None]:
        """Store a new key; StoreError if its id or digest is taken."""
        return self._put(lambda: encode.encode_key(key))

    def mark_delivered(self, session: str, index: int) -> asyncio.Future[None]:
        """The last byte of this turn's answer was sent. Not worth waiting for."""
        return self._put(lambda: encode.encode_delivered(session, index))

    def mark_skip(self, session: str, index: int, reason: Skip) -> asyncio.Future[None]:
        """Keep this turn from training; a reason that it already has stays."""
        return self._put(lambda: encode.encode_skip(session, index, reason))

    def close_session(self, session: str, closed_at: float) -> asyncio.Future[None]:
        """The session is over; the first time it is said counts, until `put_session` opens it again."""
        return self._put(lambda: encode.encode_close(session, closed_at))

    def revoke_key(self, key: str, revoked_at: float) -> asyncio.Future[None]:
        """The key opens nothing any more."""
        return self._put(lambda: encode.encode_revoke(key, revoked_at))

    def set_terms(self, key: str, terms: KeyTerms) -> asyncio.Future[None]:
        """The key has other terms from now on."""
        return self._put(lambda: encode.encode_terms(key, terms))

    async def load_open(self) -> list[SessionOutline]:
        """The sessions that nobody has closed, with an outline of every turn."""
        return await self._read(queries.open_sessions)

    async def load_private(self) -> list[str]:
        """The fingerprints of all answers in ended sessions that opted out."""
        return await self._read(queries.private_chains)

    async def get_turn(self, session: str, index: int) -> Turn | None:
        """One turn, whole."""
        return await self._read(lambda connection: queries.turn(connection, session, index))

    async def find_session(self, user: str, name: str) -> SessionOutline | None:
        """The session that this user's client calls by this name, open or closed."""
        return await self._read(lambda connection: queries.find_session(connection, user, name))

    async def outline(self, session: str) -> SessionOutline | None:
        """A session and its turns, without their texts and ids."""
        return await self._read(lambda connection: queries.outline(connection, session))

    async def record(self, session: str, index: int) -> TurnRecord | None:
        """One turn, and what was said after it."""
        return await self._read(lambda connection: queries.record(connection, session, index))

    def settled(self) -> asyncio.Event:
        """Set when the next turn settles, of whatever user."""
        return self._settled

    async def settled_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]:
        """Ids of a user's settled turns after a cursor, and the cursor behind them. ValueError if it is no cursor."""
        cursor = rollouts.Cursor.parse(after)
        found, cursor = await self._read(lambda connection: rollouts.settled_turns(connection, user, cursor, limit))
        return found, str(cursor)

    async def open_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]:
        """Ids of a user's turns that something may still follow, by name; the cursor is the last of them."""
        place = split_turn_id(after) if after else ("", -1)
        found = await self._read(lambda connection: rollouts.open_turns(connection, user, place, limit))
        return found, found[-1] if found else after

    async def turn_owner(self, session: str, index: int) -> str | None:
        """The user of a turn; None if there is no such turn."""
        return await self._read(lambda connection: queries.turn_owner(connection, session, index))

    async def can_write(self) -> bool:
        """False while every write fails. Who asks then makes it try again, once at a time."""
        if self._database.is_failing and not self._closing and not self._probing:
            self._probing = True
            try:
                await self._run(self._database.probe)
            except StoreError as error:
                logger.warning("the store still fails: %s", error)
            finally:
                self._probing = False
        return not self._database.is_failing

    async def num_feedback(self, session: str, index: int) -> int:
        """How many pieces of feedback a turn has."""
        return await self._read(lambda connection: queries.num_feedback(connection, session, index))

    @abstractmethod
    async def erase(self) -> bool:
        """Leave nothing of what was deleted, as far as the database lets us; False if that has to wait."""

    async def keys(self) -> list[ApiKey]:
        """All keys, revoked ones too."""
        return await self._read(queries.keys)

    def _put(self, encode_record: Callable[[], Write]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_put_at = time.monotonic()
        # Who does not wait must not hear of a failure from the garbage collector: the commit logs it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._closing or self._committer.done():
            future.set_exception(StoreUnavailable(CLOSED))
        elif self._queued_bytes > self._max_queued_bytes:
            waiting = f"{len(self._queue)} records ({self._queued_bytes >> 20} MiB) wait for the disk"
            future.set_exception(StoreUnavailable(f"{waiting}; nothing was stored, try again later"))
        else:
            try:
                write = encode_record()
            except (ValueError, TypeError, OverflowError, struct.error) as error:
                future.set_exception(StoreError(f"the record cannot be stored: {error}"))
            else:
                self._queue.append((write, future))
                self._queued_bytes += write.size
                if write.op is not Op.DELIVERED:
                    self._hurry()
                elif self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(UNHURRIED_S, self._hurry)
        return future

    def _hurry(self) -> None:
        self._hurried = True
        self._wake.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _commit_until_closed(self) -> None:
        try:
            while self._queue or not self._closing:
                await self._wake.wait()
                self._wake.clear()
                while self._queue and (self._hurried or self._closing):
                    if self._commit_window_s:
                        await asyncio.sleep(self._commit_window_s)
                    batch = list(itertools.islice(self._queue, MAX_BATCH))
                    self._hurried = len(self._queue) > len(batch)
                    await self._commit(batch)
                    await self._committed()
        finally:
            for _, future in self._queue:
                if not future.done():
                    future.set_exception(StoreUnavailable(CLOSED))

    @abstractmethod
    async def _committed(self) -> None:
        """What a database does now and then between two commits."""

    async def _commit(self, batch: Sequence[tuple[Write, asyncio.Future[None]]]) -> None:
        writes = [write for write, _ in batch]
        outcomes: Sequence[WriteResult]
        try:
            outcomes = await self._write(writes)
        except StoreError as error:
            logger.error("%d records could not be stored: %s", len(batch), error)
            outcomes = [StoreUnavailable(str(error)) for _ in batch]
        for (write, future), outcome in zip(batch, outcomes, strict=True):
            self._queue.popleft()
            self._queued_bytes -= write.size
            if isinstance(outcome, StoreError):
                if not future.done():
                    future.set_exception(outcome)
                continue
            if write.trunk is not None:
                self._remember(write, write.trunk)
            if write.op is Op.TURN:
                self.lessons.woken("warm").set()
                self.lessons.woken("watch").set()
            if write.op in (Op.NEXT_STATE, Op.FEEDBACK, Op.SKIP):
                self.lessons.woken("judge").set()
            if write.op is Op.CLOSE:
                self.lessons.woken("credit").set()
            if write.op in (Op.NEXT_STATE, Op.CLOSE):
                self._say_settled()
            if not future.done():
                future.set_result(None)

    async def _write(self, writes: Sequence[Write]) -> list[WriteResult]:
        return await self._run(lambda: self._database.commit(writes))

    def _say_settled(self) -> None:
        self._settled.set()
        self._settled = asyncio.Event()

    def _remember(self, write: Write, trunk: Trunk) -> None:
        # Only now: a child must not lean on a parent whose commit may still fail.
        self._trunks[write.key] = trunk
        self._trunks.move_to_end(write.key)
        # A session goes on from its newest turn mostly: the one before is the first to go.
        before = (*write.key[:2], -1 if write.row["parent"] is None else int(str(write.row["parent"])))
        if before in self._trunks:
            self._trunks.move_to_end(before, last=False)
        if len(self._trunks) > MAX_TRUNKS:
            self._trunks.popitem(last=False)

    def _forget(self, session: str) -> None:
        """Another session may come to have its name: nothing of that one may lean on what is gone."""
        for key in [key for key in self._trunks if key[1] == session]:
            del self._trunks[key]

    async def _transact(self, work: Callable[[Connection], T]) -> T:
        if self._closing:
            raise StoreUnavailable(CLOSED)
        return await self._run(lambda: self._database.transact(work))

    async def _learn(self, work: Callable[[Connection], T]) -> T:
        """A transaction of the loops that learn: one at a time, so that a commit waits for one of them at most, and
        with pauses in which only people are served.
        """
        async with self._learning:
            await self._let_others()
            if self._closing:
                raise StoreUnavailable(CLOSED)
            return await self._timed(lambda: self._database.transact(work))

    async def _let_others(self) -> None:
        if time.monotonic() - self._last_put_at < QUIET_S:
            await asyncio.sleep(self._owed_s)

    async def _timed(self, work: Callable[[], T]) -> T:
        """What the thread works for long is owed to those who talk."""
        began = 0.0

        def timed() -> T:
            nonlocal began
            began = time.monotonic()
            return work()

        result = await self._run(timed)
        self._owed_s = OTHERS_TURN * (time.monotonic() - began)
        return result

    async def _read(self, query: Callable[[Connection], T]) -> T:
        if self._closing:
            raise StoreUnavailable(CLOSED)
        return await self._run(lambda: self._database.read(query))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

"""The durable log on PostgreSQL, for one of several processes that write it: `protocols.WholeStore`.

Three connections, each with a thread of its own: what people said is written by the first, what is learned by the
second, and the third reads snapshots; so no answer waits for a long look at the log. A fourth listens (`wakeups.py`).
What other processes changed is told by `news`, which a gateway asks for before it places a request.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.store.learning_log import LearningLog
from openclaw_rl.store.postgres import journal
from openclaw_rl.store.postgres.claims import CLAIM_S, Claims
from openclaw_rl.store.postgres.database import GoneSessions, PostgresDatabase
from openclaw_rl.store.postgres.wakeups import SharedWakeups
from openclaw_rl.store.sql import lessons
from openclaw_rl.store.sql.batch import WriteResult
from openclaw_rl.store.sql.encode import Write
from openclaw_rl.store.sql.writer import CLOSED, MAX_QUEUED_BYTES, SqlStore
from openclaw_rl.store.sqlite.damage import told_of
from openclaw_rl.store.sqlite.directory import WriterLock, make_private
from openclaw_rl.types import TRACES_LEFT, News

T = TypeVar("T")

ANSWERS_WITHIN_S = 15.0
"""A server that says nothing to a commit for so long is as good as gone. Its lock and disk may take a while."""

TRIMMED_EVERY = 1000
"""Commits after which the journal is freed of what everybody has read."""


class SharedLog(LearningLog):
    """`protocols.LearningStore` with claims, and a word to the others when a session goes."""

    def __init__(self, store: PostgresStore, claims: Claims, owner: str) -> None:
        super().__init__(
            store.learn,
            read=store.look,
            at_once=store.at_once,
            on_delete=store.forget_session,
            wakeups=store.wakeups,
            owner=owner,
        )
        self._claims, self._origin = claims, store.origin

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write too."""
        return True

    @asynccontextmanager
    async def claimed(self, name: str) -> AsyncIterator[bool]:
        """Whether what has this name is this process's alone until the end."""
        async with self._claims.claimed(name) as mine:
            yield mine

    async def release_earlier(self) -> int:
        """Nothing: other runs may be alive. What a killed one had leased is free when its leases end."""
        return 0

    async def delete_session(self, session: str) -> None:
        """Every row of it; other processes let go of it too."""
        await super().delete_session(session)
        self.woken("sessions").set()

    def _delete(self, connection: Connection, session: str) -> None:
        super()._delete(connection, session)
        journal.leave(connection, session, self._origin)


class PostgresStore(SqlStore):
    """`protocols.WholeStore` on PostgreSQL."""

    _database: PostgresDatabase
    wakeups: SharedWakeups

    def __init__(
        self,
        url: str,
        lanes: Sequence[tuple[PostgresDatabase, ThreadPoolExecutor]],
        *,
        origin: str,
        gone: GoneSessions,
        lock: WriterLock,
        commit_window_s: float,
        max_queued_bytes: int,
        claim_s: float,
    ) -> None:
        (database, thread), self._learns, self._looks = lanes
        self.origin, self._gone, self._directory_lock = origin, gone, lock
        self._seen = gone.seq
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{origin}"
        self._claim_s = claim_s
        self.wakeups = SharedWakeups(url, heard=self._heard)
        super().__init__(
            database,
            thread,
            commit_window_s=commit_window_s,
            max_queued_bytes=max_queued_bytes,
            wakeups=self.wakeups,
        )
        self._listening = asyncio.create_task(self.wakeups.run(), name="store-listen")

    def _make_lessons(self) -> LearningLog:
        self._claims = Claims(self._learn_unclaimed, self._owner, ttl_s=self._claim_s)
        return SharedLog(self, self._claims, self._owner)

    @classmethod
    async def open(
        cls,
        directory: Path,
        url: str,
        *,
        commit_window_s: float = 0.0,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        claim_s: float = CLAIM_S,
    ) -> Self:
        """Connect, make or upgrade the tables, and lock the data directory: each process has one of its own, with its
        key, its versions and its settings."""
        loop = asyncio.get_running_loop()
        with told_of(directory):
            make_private(directory)
            lock = WriterLock(directory)
        origin = secrets.token_hex(6)
        gone = GoneSessions(origin)
        lanes = [
            (
                PostgresDatabase(url, origin=origin, gone=gone, reads_only=name == "looks"),
                ThreadPoolExecutor(1, f"store-{name}"),
            )
            for name in ("writes", "learns", "looks")
        ]
        try:
            for database, thread in lanes:
                await loop.run_in_executor(thread, partial(database.open, create=database is lanes[0][0]))
            looks, thread = lanes[-1]
            gone.begin(await loop.run_in_executor(thread, lambda: looks.read(journal.last)))
        except BaseException:
            for database, thread in lanes:
                database.close()
                thread.shutdown(wait=False)
            lock.release()
            raise
        store = cls(
            url,
            lanes,
            origin=origin,
            gone=gone,
            lock=lock,
            commit_window_s=commit_window_s,
            max_queued_bytes=max_queued_bytes,
            claim_s=claim_s,
        )
        await store.wakeups.tried.wait()
        return store

    async def close(self) -> None:
        """Write what is queued, and let go of the server. A second call does nothing."""
        if self._closing:
            return
        await super().close()
        for database, thread in (self._learns, self._looks):
            await asyncio.get_running_loop().run_in_executor(thread, database.close)
            thread.shutdown()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._directory_lock.release()

    async def reserve(self, session: str, index: int, count: int) -> int:
        """The first of `count` turn numbers in a row that no other process gets, `index` or higher."""
        if self._closing:
            raise StoreUnavailable(CLOSED)
        return await self._run(lambda: self._database.reserve(session, index, count))

    async def can_write(self) -> bool:
        """False while the server does not answer, or every write fails. Who asks then makes it try again."""
        looks, _ = self._looks
        if looks.is_failing and not self._closing:
            with suppress(StoreError):
                await self._look(journal.last)
        return not looks.is_failing and await super().can_write()

    async def news(self) -> News:
        """What other processes changed since the last call, and what of our own is in doubt."""
        seen = self._seen
        changes, first = await self._look(
            lambda connection: (journal.since(connection, seen), journal.first(connection))
        )
        doubtful, self._database.doubtful = self._database.doubtful, set()
        self._gone.hear(changes)
        self._seen = max([seen, *(change.seq for change in changes)])
        theirs = [change for change in changes if change.origin != self.origin or change.name in doubtful]
        for change in theirs:
            if change.kind == "gone":
                self._forget(change.name)
        return News(
            sessions=tuple(dict.fromkeys([*(c.name for c in theirs if c.kind == "session"), *doubtful])),
            gone=tuple(dict.fromkeys(change.name for change in theirs if change.kind == "gone")),
            keys=any(change.kind == "keys" for change in theirs),
            missed=first > seen + 1 and seen > 0,
        )

    async def erase(self) -> bool:
        """Leave no deleted row in a table: its space is free, and will be written over. `TRACES_LEFT` is gone then."""
        traces = await self.lessons.flag(TRACES_LEFT)
        await self._on(self._learns, lambda database: database.vacuum())
        await self.learn(lambda connection: lessons.all_erased(connection, traces))
        return True

    async def learn(self, work: Callable[[Connection], T]) -> T:
        """A transaction of the loops that learn, if the claims that it stands on hold."""

        standing = self._claims.standing

        def checked(connection: Connection) -> T:
            self._claims.check(connection, standing)
            return work(connection)

        return await self._learn_unclaimed(checked)

    async def at_once(self, work: Callable[[Connection], T]) -> T:
        """Before all that is put later."""
        return await self._transact(work)

    async def look(self, query: Callable[[Connection], T]) -> T:
        """The answer to a query, from one snapshot."""
        return await self._look(query)

    def forget_session(self, session: str) -> None:
        """It is about to be deleted, here or by another process."""
        self._forget(session)

    async def _learn_unclaimed(self, work: Callable[[Connection], T]) -> T:
        return await self._on(self._learns, lambda database: database.transact(work))

    async def _look(self, query: Callable[[Connection], T]) -> T:
        return await self._on(self._looks, lambda database: database.read(query))

    async def _read(self, query: Callable[[Connection], T]) -> T:
        return await self._look(query)

    async def _on(self, lane: tuple[PostgresDatabase, ThreadPoolExecutor], work: Callable[[PostgresDatabase], T]) -> T:
        if self._closing:
            raise StoreUnavailable(CLOSED)
        database, thread = lane
        loop = asyncio.get_running_loop()
        watch = None if lane is self._learns else loop.call_later(2 * ANSWERS_WITHIN_S, database.cut)
        try:
            return await loop.run_in_executor(thread, lambda: work(database))
        finally:
            if watch is not None:
                watch.cancel()

    async def _write(self, writes: Sequence[Write]) -> list[WriteResult]:
        watch = asyncio.get_running_loop().call_later(ANSWERS_WITHIN_S, self._database.cut)
        try:
            outcomes = await super()._write(writes)
        finally:
            watch.cancel()
        self.wakeups.tell("sessions")
        return outcomes

    async def _committed(self) -> None:
        if self._database.commits % TRIMMED_EVERY == 0:
            with suppress(StoreError):  # another time
                await self._learn_unclaimed(journal.trim)

    def _heard(self, topic: str) -> None:
        if topic == "sessions":
            self._say_settled()

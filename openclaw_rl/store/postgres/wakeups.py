"""Wake-ups between processes: LISTEN and NOTIFY. A topic that is set here wakes whoever waits for it, everywhere.

consumes      notifications of other processes, and topics that are set in this one
produces      set events here, notifications there; a few of one topic at once are one
waits for     PostgreSQL
woken by      either of them, and the clock: a notification may be lost with a connection, so all that wait look again
              after every reconnection, and every LOOK_AGAIN_S

Knows nothing of what the topics mean; what is true is in the rows.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from openclaw_rl.backoff import Backoff
from openclaw_rl.protocols import Wakeup
from openclaw_rl.store.postgres.connection import CONNECT_S, parse
from openclaw_rl.types import Topic

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Notify

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 10.0

_AGAIN = Backoff(first_s=0.2, longest_s=10.0)


class _Shared:
    """An event of this process that tells the others when it is set."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.here = asyncio.Event()
        self._tell = tell

    def set(self) -> None:
        self.here.set()
        self._tell()

    def is_set(self) -> bool:
        return self.here.is_set()

    def clear(self) -> None:
        self.here.clear()

    async def wait(self) -> object:
        return await self.here.wait()


class SharedWakeups:
    """`protocols.Wakeups` for all processes on one store. `heard` is told of every topic that another one set."""

    def __init__(self, url: str, *, heard: Callable[[str], None] = lambda _: None) -> None:
        self._url = url
        self._heard = heard
        self._me = secrets.token_hex(6)
        self._events: dict[str, _Shared] = {}
        self._to_tell: dict[str, None] = {}
        self._has_news = asyncio.Event()
        self.tried = asyncio.Event()
        """Whether it listens, or cannot for now."""

    def woken(self, topic: Topic) -> Wakeup:
        """The event of a topic."""
        if topic not in self._events:
            self._events[topic] = _Shared(lambda: self.tell(topic))
        return self._events[topic]

    def tell(self, topic: str) -> None:
        """Wakes the others only."""
        self._to_tell[topic] = None
        self._has_news.set()

    async def run(self) -> None:
        """Until cancelled; a server that is away only delays it."""
        num_failures = 0
        while True:
            try:
                async with await self._connect() as connection:
                    num_failures = 0
                    self.tried.set()
                    self._look_again()
                    await self._attend(connection)
            except Exception as error:
                # A boundary: whatever it is, the loops look again by the clock until it is over.
                num_failures += 1
                self.tried.set()
                if num_failures == 1:
                    log.warning("other processes are not heard for now: %s", type(error).__name__)
                self._look_again()
                await asyncio.sleep(_AGAIN.pause_s(num_failures))

    async def _connect(self) -> AsyncConnection:
        from psycopg import AsyncConnection, sql

        parsed = parse(self._url)
        connection = await AsyncConnection.connect(
            parsed.set(drivername="postgresql").render_as_string(hide_password=False),
            autocommit=True,
            connect_timeout=CONNECT_S,
            application_name="openclaw-rl listens",
        )
        try:
            connection.add_notify_handler(self._noticed)
            row = await (await connection.execute("SELECT 'openclaw_rl_' || md5(current_schema())")).fetchone()
            assert row is not None
            self._channel = row[0]
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _attend(self, connection: AsyncConnection) -> None:
        """Hears and tells in turn: one connection can do one of them at a time."""
        while True:
            told = list(self._to_tell)
            self._to_tell.clear()
            self._has_news.clear()
            try:
                for topic in told:
                    await connection.execute("SELECT pg_notify(%s, %s)", (self._channel, f"{topic} {self._me}"))
            except BaseException:
                self._to_tell.update(dict.fromkeys(told))
                raise
            await self._hear(connection)

    async def _hear(self, connection: AsyncConnection) -> None:
        """Returns when there is something to tell, or after LOOK_AGAIN_S of silence."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        descriptor = connection.fileno()
        loop.add_reader(descriptor, ready.set)
        waits = [asyncio.ensure_future(one.wait()) for one in (ready, self._has_news)]
        try:
            done, _ = await asyncio.wait(waits, timeout=LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(descriptor)
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not done:
            self._look_again()
        # Whatever is asked, notifications come with the answer; and a connection that died in silence is found out.
        await connection.execute("SELECT 1")

    def _noticed(self, notice: Notify) -> None:
        topic, _, sender = notice.payload.partition(" ")
        if sender != self._me:
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        if topic in self._events:
            self._events[topic].here.set()
        self._heard(topic)

    def _look_again(self) -> None:
        for topic in list(self._events):
            self._wake(topic)

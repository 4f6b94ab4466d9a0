"""A fair share of the processor and of memory for each user: work too long for the event loop, in a few threads.

Users take turns, each with one piece of work, whoever brought more. Small work has threads of its own, so that it never
waits behind large work. Bodies are counted while they are read and until they are rendered: a user who holds his share,
or a crowd that holds all there is, is told to come again.

It knows no request: work is a function, its size the bytes or characters that it goes through.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from openclaw_rl.errors import RequestError

T = TypeVar("T")

IsWanted = Callable[[], bool]
"""Whether somebody still waits for the result: long work asks now and then, and gives up by raising."""

AT_ONCE = 16_384
"""Up to this size work is done on the spot: a thread would cost more."""
SMALL = 262_144
"""Larger work than this does not wait in one line with the rest."""
_RETRY_AFTER_S = 2
_IDLE_S = 10.0


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    done: asyncio.Future[Any]


@dataclass(slots=True)
class _Lane:
    """Who waits for `width` threads. The first user is the next one; he goes to the end of the line then."""

    width: int
    num_running: int = 0
    num_threads: int = 0
    begun: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, _Job]] = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Of `num_threads`, and of a thread's decision to end."""
    waiting: OrderedDict[str, deque[_Job]] = field(default_factory=OrderedDict)

    def add(self, user: str, job: _Job) -> None:
        self.waiting.setdefault(user, deque()).append(job)

    def next(self) -> _Job | None:
        """The next job that somebody still waits for."""
        while self.waiting:
            user, jobs = self.waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self.waiting[user] = jobs
            if not job.done.done():
                return job
        return None


class Held:
    """What one request holds of its user's share."""

    def __init__(self, shares: Shares, user: str) -> None:
        self._shares = shares
        self._user = user
        self.num_bytes = 0

    def grow(self, num_bytes: int) -> None:
        """So many bytes more; a 429 or 503 if they are not there."""
        self._shares.take(self._user, num_bytes)
        self.num_bytes += num_bytes


class Shares:
    """`max_bytes` is for all users together, half of it for each."""

    def __init__(self, *, max_bytes: int = 256 << 20, num_threads: int | None = None) -> None:
        width = num_threads or os.cpu_count() or 2
        self._small, self._large = _Lane(width), _Lane(max(1, width // 2))
        self._max_bytes = max_bytes
        self._num_held = 0
        self._held: Counter[str] = Counter()
        self._is_closed = False

    async def run(self, user: str, size: int, work: Callable[[IsWanted], T]) -> T:
        """What `work` returns or raises. Cancelled, work that has not begun never does, and other work is told."""
        if size <= AT_ONCE:
            return work(lambda: True)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane = self._small if size <= SMALL else self._large
        wanted = partial(work, lambda: not (done.done() or self._is_closed))
        lane.add(user, _Job(partial(contextvars.copy_context().run, wanted), done))
        self._fill(lane)
        return await done

    @contextmanager
    def holding(self, user: str) -> Iterator[Held]:
        """Memory that is given back at the end."""
        held = Held(self, user)
        try:
            yield held
        finally:
            self._num_held -= held.num_bytes
            self._held[user] -= held.num_bytes
            if not self._held[user]:
                del self._held[user]

    def take(self, user: str, num_bytes: int) -> None:
        """Counts memory as this user's, or refuses it. `holding` gives it back."""
        if self._held[user] + num_bytes > self._max_bytes // 2:
            raise RequestError(
                "your requests that are being read together are larger than one user's share; send fewer at once",
                status=429,
                code="too_much_at_once",
                retry_after_s=_RETRY_AFTER_S,
            )
        if self._num_held + num_bytes > self._max_bytes:
            raise RequestError(
                "the requests that are being read fill gateway.max_reading_bytes; try again in a moment",
                status=503,
                code="too_much_at_once",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._num_held += num_bytes
        self._held[user] += num_bytes

    def close(self) -> None:
        """Nobody waits any more, and nothing new is begun; returns without waiting for what runs."""
        self._is_closed = True

    def _fill(self, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        while lane.num_running < lane.width and not self._is_closed and (job := lane.next()) is not None:
            lane.num_running += 1
            with lane.lock:
                lane.begun.put((loop, job))
                is_short = lane.num_threads < lane.num_running
                lane.num_threads += is_short
            if is_short:
                # The end of the process does not wait for it: tokenising one long run of blanks takes seconds, in which
                # nothing can be asked.
                threading.Thread(target=self._serve, args=(lane,), name="share", daemon=True).start()

    def _serve(self, lane: _Lane) -> None:
        """A thread: one job after another, until there was none for a while. Beginning a thread for each job cost a
        twentieth of a long request."""
        while True:
            try:
                loop, job = lane.begun.get(timeout=_IDLE_S)
            except queue.Empty:
                with lane.lock:
                    if lane.begun.empty():
                        lane.num_threads -= 1
                        return
            else:
                self._work(loop, lane, job)
                del job

    def _work(self, loop: asyncio.AbstractEventLoop, lane: _Lane, job: _Job) -> None:
        result, failure = None, None
        try:
            result = job.run()
        except BaseException as error:  # raised again where somebody waits for the result
            failure = error
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(self._ended, lane, job, result, failure)

    def _ended(self, lane: _Lane, job: _Job, result: object, failure: BaseException | None) -> None:
        lane.num_running -= 1
        self._fill(lane)
        if job.done.done():
            return
        if failure is not None:
            job.done.set_exception(failure)
        else:
            job.done.set_result(result)

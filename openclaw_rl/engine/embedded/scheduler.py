"""Many requests, one model -> an `Engine` whose answers advance in turn.

Consumes requests; produces deltas into each request's outbox; waits for nothing while there is work; woken by
`generate`. The model computes in a thread of its own, everything else happens on the event loop, so there is nothing
to lock. At most `max_active` requests hold a cache; the others wait in line. A cancelled request is dropped before its
next forward pass. Knows no torch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from openclaw_rl.engine.admission import admit
from openclaw_rl.engine.wire import coalesce
from openclaw_rl.errors import EngineError, EngineLost
from openclaw_rl.types import Delta, EngineState, GenerateRequest

_log = logging.getLogger(__name__)

G = TypeVar("G")


class Stepper(Protocol[G]):
    """What computes: `begin` makes the private state of an answer, `advance` is one forward pass of it."""

    state: EngineState

    def begin(self, request: GenerateRequest, version: str, max_tokens: int) -> G: ...

    def advance(self, generation: G) -> Delta | None: ...


class _Job(Generic[G]):
    """A request in the engine. `over` is set by whoever stops first: the reader that leaves, or the last delta."""

    def __init__(self, generation: G) -> None:
        self.generation = generation
        self.over = False
        self.error: EngineError | None = None
        self.outbox: list[Delta] = []
        self.news = asyncio.Event()

    def put(self, delta: Delta) -> None:
        self.outbox.append(delta)
        self.over = self.over or delta.finish_reason is not None
        self.news.set()

    def fail(self, error: EngineError) -> None:
        self.error = error
        self.over = True
        self.news.set()

    async def take(self) -> list[Delta]:
        """What waits, in as few deltas as possible; raises the job's error once nothing waits."""
        await self.news.wait()
        if self.error is not None and not self.outbox:
            raise self.error
        waiting, self.outbox = self.outbox, []
        if not self.over:
            self.news.clear()
        return coalesce(waiting)


class EmbeddedEngine(Generic[G]):
    """An `Engine` over a `Stepper`."""

    def __init__(self, stepper: Stepper[G], *, max_active: int = 8) -> None:
        self._stepper = stepper
        self._max_active = max_active
        self._waiting: deque[_Job[G]] = deque()
        self._active: list[_Job[G]] = []
        self._running: asyncio.Task[None] | None = None
        # One thread, always the same: each thread that calls torch gets an OpenMP team of its own.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    @property
    def num_requests(self) -> int:
        """Requests that compute or wait in line."""
        return sum(not job.over for job in (*self._active, *self._waiting))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they are sampled; tokens that piled up behind a slow reader come as one delta."""
        version, max_tokens = admit(request, self._stepper.state)
        job = _Job(self._stepper.begin(request, version, max_tokens))
        self._waiting.append(job)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        try:
            finished = False
            while not finished:
                for delta in await job.take():
                    finished = delta.finish_reason is not None
                    yield delta
        finally:
            job.over = True

    async def state(self) -> EngineState:
        """What the model says about itself."""
        return self._stepper.state

    async def close(self) -> None:
        """Ends what runs; returns when the model's thread is idle."""
        for job in (*self._active, *self._waiting):
            job.fail(EngineLost("the engine was closed"))
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self) -> None:
        while self._waiting or self._active:
            while self._waiting and len(self._active) < self._max_active:
                self._active.append(self._waiting.popleft())
            for job in self._active:
                if not job.over:
                    await self._advance(job)
            self._active = [job for job in self._active if not job.over]

    async def _advance(self, job: _Job[G]) -> None:
        loop = asyncio.get_running_loop()
        try:
            delta = await loop.run_in_executor(self._thread, self._stepper.advance, job.generation)
        except EngineError as error:
            job.fail(error)
        except Exception as error:
            # The boundary of the model: out of memory in one answer must not end the others.
            _log.exception("forward pass failed")
            job.fail(EngineError(f"the model failed with {type(error).__name__}; the engine's log has the traceback"))
        else:
            if delta is not None:
                job.put(delta)

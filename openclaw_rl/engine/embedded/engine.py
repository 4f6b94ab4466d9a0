"""The scheduler in a thread of its own -> the `Engine` that the worker serves.

Everything that is decided per request, versions above all, happens on the event loop: a version goes live by one
assignment there, and requests hold on to the version they began with. The thread takes what was posted to it, makes a
step, hands the results back in one call, and sleeps when there is nothing to do.

    consumes      requests and cancellations, posted from the event loop
    produces      deltas into each request's outbox
    waits for     a post, while there is no job
    woken by      `_post`
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from openclaw_rl.engine.embedded.cache import MIN_SHARED, common_prefix
from openclaw_rl.engine.embedded.paging import Pages
from openclaw_rl.engine.embedded.scheduler import (
    AnswerJob,
    EngineWeights,
    HiddenJob,
    Job,
    ReadingJob,
    Result,
    Scheduler,
)
from openclaw_rl.engine.worker.admission import admit, admit_hidden, admit_publication, admit_retirement, admit_score
from openclaw_rl.engine.worker.wire import coalesce
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused
from openclaw_rl.types import (
    BASE_VERSION,
    Delta,
    EngineState,
    GenerateRequest,
    Hidden,
    HiddenRequest,
    Publication,
    Scored,
    ScoreRequest,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

Answer = Delta | Scored | Hidden

Load = Callable[[Publication], EngineWeights]
"""Reads a published version from disk. Blocking; `EngineRefused` if it is not what was published."""


@dataclass(slots=True, eq=False)
class _Version:
    """A version that can be asked for, and how many requests still run on it or wait for it. Its weights are in memory
    while somebody holds them (`paging.py`); those of the base always are."""

    publication: Publication
    num_requests: int = 0

    @property
    def label(self) -> str:
        return self.publication.version


@dataclass(slots=True, eq=False)
class _Outbox:
    """What a request's reader has not seen yet. Filled and read on the event loop. `over` is called when nothing more
    is computed, however long the reader takes."""

    over: Callable[[], object] = lambda: None
    results: list[Answer] = field(default_factory=list)
    error: EngineError | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self) -> list[Answer]:
        """What waits; raises the error once nothing waits."""
        await self.news.wait()
        self.news.clear()
        if self.error is not None and not self.results:
            raise self.error
        waiting, self.results = self.results, []
        if self.error is not None:
            self.news.set()
        return waiting


class EmbeddedEngine:
    """An `Engine` over a `Scheduler`. `state` describes the base weights; versions are added to it as they come.

    The cache must hold a whole context window: then every job that is admitted can run, alone if need be. The weights
    of at most `max_adapters` versions are in memory beside the base.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        base: EngineWeights,
        state: EngineState,
        load: Load,
        *,
        max_queued: int,
        max_active: int,
        max_adapters: int = 32,
    ) -> None:
        self._scheduler = scheduler
        self._base = base
        self._state = state
        self._max_requests = max_queued + max_active
        self._versions = {BASE_VERSION: _Version(Publication(version=BASE_VERSION))}
        self._pages = Pages(max_adapters, partial(_brought, load), self._page_out)
        self._live = BASE_VERSION
        self._retired: dict[str, str] = {}
        """The checksums of versions that are gone: a label names the same bytes for ever."""
        self._outboxes: dict[Job, _Outbox] = {}
        self._num_waiting = 0
        """Requests whose version is being brought into memory."""
        self._max_active = max_active
        self._publishing = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._posted: list[Callable[[], object]] = []
        self._wake = threading.Condition()
        self._closing = False
        # One thread, always the same: each thread that calls torch gets an OpenMP team of its own.
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def num_requests(self) -> int:
        """Requests that compute or wait in line."""
        return len(self._outboxes) + self._num_waiting

    @property
    def in_memory(self) -> tuple[str, ...]:
        """The versions whose weights are in memory beside the base, the one used longest ago first."""
        return self._pages.labels

    async def state(self) -> EngineState:
        """What is loaded now."""
        if self._closing:
            raise EngineLost("the model's thread has ended")
        return EngineState(
            model=self._state.model,
            versions=tuple(self._versions),
            live_version=self._live,
            context_window=self._state.context_window,
            vocab_size=self._state.vocab_size,
            device=self._state.device,
            dtype=self._state.dtype,
            checksums=self._checksums,
        )

    @property
    def _checksums(self) -> dict[str, str]:
        return {label: known.publication.sha256 for label, known in self._versions.items() if known.publication.sha256}

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they are sampled; tokens that piled up behind a slow reader come as one delta."""
        label, max_tokens = admit(request, await self.state())
        self._check_line()
        version = self._versions[label]
        with self._holding(version):
            weights = await self._taken(version)
            give_back = _Once(partial(self._give_back, label))
            try:
                job = AnswerJob(request, weights, max_tokens)
                async with aclosing(self._results(job, version, over=give_back)) as answers:
                    async for results in answers:
                        for delta in coalesce([result for result in results if isinstance(result, Delta)]):
                            yield delta
            finally:
                give_back()

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """Every sequence; where they share a prefix the first goes ahead, and the others find it computed."""
        label = admit_score(request, await self.state())
        version = self._versions[label]
        # Without a salt the sequences are each other's alone, and leave nothing.
        salt = request.cache_salt or f"score-{secrets.token_hex(8)}"
        async with self._in_memory(version) as weights:
            try:
                return await self._score(request, version, weights, salt)
            finally:
                if not request.cache_salt:
                    self._post(lambda: self._scheduler.forget_cache({salt}))

    async def _score(
        self, request: ScoreRequest, version: _Version, weights: EngineWeights, salt: str
    ) -> tuple[Scored, ...]:
        readings = [
            ReadingJob(
                token_ids,
                start,
                weights,
                temperature=request.temperature,
                top=request.top_logprobs,
                priority=request.priority,
                salt=salt,
            )
            for token_ids, start in zip(request.sequences, request.starts, strict=True)
        ]
        first, last = min(request.sequences), max(request.sequences)  # what these two share, all share
        goes_ahead = len(readings) > 1 and common_prefix(first, last) >= MIN_SHARED
        # A limit for each request, not for all: who comes first among them is the scheduler's to say.
        turns = asyncio.Semaphore(self._max_active)
        scored = [await self._read(readings[0], version, turns)] if goes_ahead else []
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._read(reading, version, turns)) for reading in readings[len(scored) :]]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # one request, one answer: the others were cancelled with it
        return (*scored, *(task.result() for task in tasks))

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]:
        """Of the base, whatever is live."""
        base = self._versions[BASE_VERSION]
        admit_hidden(request, await self.state(), num_layers=self._base.runner.num_layers)
        jobs = [HiddenJob(ids, request.layer, self._base, request.priority) for ids in request.sequences]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._read_hidden(job, base)) for job in jobs]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    async def _read_hidden(self, job: HiddenJob, version: _Version) -> Hidden:
        ((hidden,),) = [results async for results in self._results(job, version)]
        assert isinstance(hidden, Hidden)
        return hidden

    async def publish(self, publication: Publication) -> None:
        """Loads the version beside what runs; from its last line on it is there, and live if that was wished."""
        # In a task of its own: a load that has begun cannot be stopped, and what it brought must not be lost.
        task = asyncio.create_task(self._publish(publication))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    async def _publish(self, publication: Publication) -> None:
        async with self._publishing:
            version = publication.version
            loaded = {label: known.publication.sha256 for label, known in self._versions.items()}
            if version not in loaded and version in self._retired:
                admit_publication(publication, self._retired)  # its keys and values may still be in the cache
            if admit_publication(publication, loaded):
                if not (publication.known and self._pages.is_full):
                    await self._pages.take(publication)
                    self._pages.give_back(version)
                self._versions[version] = _Version(publication)
            if publication.live:
                self._live = version

    async def retire(self, version: str) -> None:
        """New requests no longer find the version; it is freed when the last one that runs on it ends."""
        admit_retirement(version, await self.state())
        retired = self._versions.pop(version)
        self._retired[version] = retired.publication.sha256
        if retired.num_requests == 0:
            self._forget(version)

    async def forget_cache(self, salts: Collection[str]) -> None:
        """Of these salts no request finds anything from now on; the memory is free after the step that runs."""
        if self._closing:
            raise EngineLost("the model's thread has ended")
        forgotten = frozenset(salts)
        self._post(lambda: self._scheduler.forget_cache(forgotten))

    async def close(self) -> None:
        """Ends what runs; returns when the model's thread has ended."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        await self._pages.close()
        self._abandon()

    async def _read(self, reading: ReadingJob, version: _Version, turns: asyncio.Semaphore) -> Scored:
        async with turns:
            ((scored,),) = [results async for results in self._results(reading, version)]
        assert isinstance(scored, Scored)
        return scored

    def _check_line(self) -> None:
        if self.num_requests >= self._max_requests:
            raise EngineRefused(
                f"{self.num_requests} requests are in line, more than engine.max_queued allows; try again later",
                status=503,
                code="queue_full",
            )

    async def _taken(self, version: _Version) -> EngineWeights:
        """The version's weights, which stay in memory until `_give_back`."""
        if version.label == BASE_VERSION:
            return self._base
        self._num_waiting += 1
        try:
            return await self._pages.take(version.publication)
        finally:
            self._num_waiting -= 1

    def _give_back(self, label: str) -> None:
        if label != BASE_VERSION:
            self._pages.give_back(label)

    @asynccontextmanager
    async def _in_memory(self, version: _Version) -> AsyncIterator[EngineWeights]:
        with self._holding(version):
            weights = await self._taken(version)
            try:
                yield weights
            finally:
                self._give_back(version.label)

    def _page_out(self, weights: EngineWeights) -> None:
        self._post(weights.free)

    def _forget(self, label: str) -> None:
        """Nothing of a version stays."""
        self._pages.drop(label)
        self._post(lambda: self._scheduler.forget(label))

    async def _results(
        self, job: Job, version: _Version, *, over: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[list[Answer], None]:
        """Runs a job from its place in line to its end; leaving early cancels it."""
        if self._closing:
            raise EngineLost("the model's thread has ended")
        self._loop = asyncio.get_running_loop()
        outbox = self._outboxes[job] = _Outbox(over)
        with self._holding(version):
            self._post(lambda: self._scheduler.submit(job))
            try:
                finished = False
                while not finished:
                    results = await outbox.take()
                    last = results[-1]
                    finished = not isinstance(last, Delta) or last.finish_reason is not None
                    yield results
            finally:
                del self._outboxes[job]
                self._post(lambda: self._scheduler.cancel(job))

    @contextmanager
    def _holding(self, version: _Version) -> Iterator[None]:
        """The version stays loaded, also if it is retired meanwhile; the last one to let go frees it then."""
        version.num_requests += 1
        try:
            yield
        finally:
            version.num_requests -= 1
            if version.num_requests == 0 and self._versions.get(version.label) is not version:
                self._forget(version.label)

    def _post(self, work: Callable[[], object]) -> None:
        with self._wake:
            self._posted.append(work)
            self._wake.notify()

    def _deliver(self, results: list[Result]) -> None:
        for job, result in results:
            outbox = self._outboxes.get(job)
            if outbox is None:
                continue  # its reader has left
            if isinstance(result, EngineError):
                outbox.error = result
            else:
                outbox.results.append(result)
            if not isinstance(result, Delta) or result.finish_reason is not None:
                outbox.over()
            outbox.news.set()

    def _abandon(self) -> None:
        for outbox in self._outboxes.values():
            outbox.error = EngineLost("the model's thread has ended")
            outbox.news.set()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._work()
        except Exception:
            # A defect of ours, or memory that is gone for good. Whoever asks next learns it, and the supervisor, whose
            # question after our state fails too, replaces this process.
            _log.critical("the model's thread ended", exc_info=True)
            self._closing = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._abandon)

    def _work(self) -> None:
        with self._wake:
            while not (self._posted or self._closing or self._scheduler.has_work):
                self._wake.wait()
            posted, self._posted = self._posted, []
        for work in posted:
            work()
        results = self._scheduler.step()
        if results and self._loop is not None:
            self._loop.call_soon_threadsafe(self._deliver, results)


class _Once:
    """Does something the first time that it is called."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work: Callable[[], object] | None = work

    def __call__(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


async def _brought(load: Load, publication: Publication) -> EngineWeights:
    return await asyncio.to_thread(load, publication)

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
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from openclaw_rl.engine.embedded.cache import MIN_SHARED, common_prefix
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
    """A loaded version and how many requests still run on it."""

    weights: EngineWeights
    sha256: str
    num_requests: int = 0


@dataclass(slots=True, eq=False)
class _Outbox:
    """What a request's reader has not seen yet. Filled and read on the event loop."""

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

    The cache must hold a whole context window: then every job that is admitted can run, alone if need be.
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
    ) -> None:
        self._scheduler = scheduler
        self._load = load
        self._state = state
        self._max_requests = max_queued + max_active
        self._versions = {BASE_VERSION: _Version(base, sha256="")}
        self._live = BASE_VERSION
        self._retired: dict[str, str] = {}
        """The checksums of versions that are gone: a label names the same bytes for ever."""
        self._outboxes: dict[Job, _Outbox] = {}
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
        return len(self._outboxes)

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
            checksums={label: known.sha256 for label, known in self._versions.items() if known.sha256},
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they are sampled; tokens that piled up behind a slow reader come as one delta."""
        label, max_tokens = admit(request, await self.state())
        version = self._versions[label]
        async for results in self._results(AnswerJob(request, version.weights, max_tokens), version):
            for delta in coalesce([result for result in results if isinstance(result, Delta)]):
                yield delta

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """Every sequence; where they share a prefix the first goes ahead, and the others find it computed."""
        label = admit_score(request, await self.state())
        version = self._versions[label]
        # Without a salt the sequences are each other's alone, and leave nothing.
        salt = request.cache_salt or f"score-{secrets.token_hex(8)}"
        with self._holding(version):
            try:
                return await self._score(request, version, salt)
            finally:
                if not request.cache_salt:
                    self._post(lambda: self._scheduler.forget_cache({salt}))

    async def _score(self, request: ScoreRequest, version: _Version, salt: str) -> tuple[Scored, ...]:
        readings = [
            ReadingJob(
                token_ids,
                start,
                version.weights,
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
        admit_hidden(request, await self.state(), num_layers=base.weights.runner.num_layers)
        jobs = [HiddenJob(ids, request.layer, base.weights, request.priority) for ids in request.sequences]
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
            loaded = {label: known.sha256 for label, known in self._versions.items()}
            if version not in loaded and version in self._retired:
                admit_publication(publication, self._retired)  # its keys and values may still be in the cache
            if admit_publication(publication, loaded):
                weights = await asyncio.to_thread(self._load, publication)
                self._versions[version] = _Version(weights, publication.sha256)
            if publication.live:
                self._live = version

    async def retire(self, version: str) -> None:
        """New requests no longer find the version; it is freed when the last one that runs on it ends."""
        admit_retirement(version, await self.state())
        retired = self._versions.pop(version)
        self._retired[version] = retired.sha256
        if retired.num_requests == 0:
            self._post(lambda: self._scheduler.forget(retired.weights))

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
        self._abandon()

    async def _read(self, reading: ReadingJob, version: _Version, turns: asyncio.Semaphore) -> Scored:
        async with turns:
            ((scored,),) = [results async for results in self._results(reading, version)]
        assert isinstance(scored, Scored)
        return scored

    async def _results(self, job: Job, version: _Version) -> AsyncGenerator[list[Answer], None]:
        """Runs a job from its place in line to its end; leaving early cancels it."""
        if len(self._outboxes) >= self._max_requests and isinstance(job, AnswerJob):
            raise EngineRefused(
                f"{len(self._outboxes)} requests are in line, more than engine.max_queued allows; try again later",
                status=503,
                code="queue_full",
            )
        if self._closing:
            raise EngineLost("the model's thread has ended")
        self._loop = asyncio.get_running_loop()
        outbox = self._outboxes[job] = _Outbox()
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
            if version.num_requests == 0 and self._versions.get(version.weights.label) is not version:
                self._post(lambda: self._scheduler.forget(version.weights))

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

"""How an engine begins to live, and a client -> an `EngineHost`: an engine that is started again whenever it dies.

Consumes a worker's death; produces a worker that answers; waits for the end of its life (`life.py`: a process of ours,
or a server at a URL); woken by it and by `stop`. The pause before a restart doubles with each death, and is short again
after a worker that was ready for `stable_s`. A worker is ready when it has loaded again everything that was published
(`ledger.py`). Requests only pass through. A request that a death cuts short is not repeated here: the caller has its
tokens and goes on from them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from openclaw_rl.backoff import Backoff
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.engine.worker.ledger import Ledger
from openclaw_rl.engine.worker.life import Launch, Life, ProcessLaunch, parse_line
from openclaw_rl.engine.worker.waiting import WaitingRoom
from openclaw_rl.errors import ConfigError, EngineError, EngineLost, EngineRefused
from openclaw_rl.protocols import Engine, HiddenReader
from openclaw_rl.types import (
    Capabilities,
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

_BACKOFF = Backoff(first_s=0.5, longest_s=30.0)


async def _nothing() -> None: ...


class Supervisor:
    """Keeps one worker alive while `run` runs. Made inside a running event loop.

    What the worker writes are JSON lines, which become records of our logger. `welcome` looks at one that has begun,
    before it is told anything: `ConfigError` if it is none that we can use. The first such error ends `run`, for
    somebody is there to read it; later ones are the reason why nothing answers.
    """

    def __init__(
        self,
        launch: Launch,
        worker: Engine,
        *,
        capabilities: Capabilities,
        welcome: Callable[[], Awaitable[None]] = _nothing,
        name: str = "engine",
        start_timeout_s: float = 120.0,
        wait_s: float = 60.0,
        max_waiting: int = 256,
        backoff: Backoff = _BACKOFF,
        stable_s: float = 60.0,
        grace_s: float = 5.0,
    ) -> None:
        self.engine = SupervisedEngine(self)
        self.capabilities = capabilities
        self.worker = worker
        """The client of the worker itself, ready or not."""
        self.launch = launch
        self.ledger = Ledger()
        """What a new worker must load before it is ready."""
        self.state: EngineState | None = None
        """What the last worker that was ready said about itself, as of its last change."""
        self.last_error: str | None = None
        """Why no worker answers: its own fatal message, or how it ended. None once one is ready."""
        self.num_restarts = 0
        self._welcome_first = welcome
        self._name = name
        self._start_timeout_s = start_timeout_s
        self._waiting = WaitingRoom(wait_s=wait_s, max_waiting=max_waiting)
        self._backoff = backoff
        self._stable_s = stable_s
        self._grace_s = grace_s
        self._num_deaths = 0
        """In a row: since the last worker that was ready for `stable_s`."""
        self._life: Life | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @classmethod
    def of_worker(cls, command: Sequence[str], socket: Path, **options: Any) -> Supervisor:
        """For a command that starts a worker of ours, listening on `socket`."""
        return cls(ProcessLaunch(command=tuple(command), socket=socket), SocketEngine(socket), **options)

    @property
    def is_ready(self) -> bool:
        """Whether a worker answers."""
        return self._ready.is_set()

    @property
    def answering(self) -> int | None:
        """Which worker answers, as the number of those before it; None if none does."""
        return self.num_restarts if self._ready.is_set() else None

    @property
    def _pause_s(self) -> float:
        return self._backoff.pause_s(self._num_deaths)

    async def run(self) -> None:
        """Keeps a worker alive until `stop`. However it ends, no process is left."""
        self._running = asyncio.current_task()
        try:
            while True:
                await self._live_once()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), self._pause_s)
                if self._stopping.is_set():
                    return
                self.num_restarts += 1
        finally:
            await self.worker.close()

    async def stop(self) -> None:
        """Ends the worker (SIGTERM, and SIGKILL after `grace_s`) and `run`; returns when both are gone."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        """What the worker says about itself, as soon as one answers; `EngineUnavailable` when none does in time."""
        if self._ready.is_set() and self.state is not None:
            return self.state
        retry_after_s = max(1, math.ceil(self._pause_s))
        await self._waiting.wait(self._ready.wait, timeout_s, retry_after_s=retry_after_s)
        assert self.state is not None, "a ready worker has told its state"
        return self.state

    async def recheck(self) -> None:
        """After a broken connection or a change: returns when `state` is up to date or the worker known to be gone.

        Without this a caller could ask again and again in the moment between a worker's death and our seeing it. A
        worker that lives but does not answer is of no use: it is killed, and so replaced.
        """
        life = self._life
        if life is None or life.ready_at is None:
            return  # the one that broke is gone already, and its successor is still loading
        try:
            state = await self.worker.state()
        except EngineError:
            await self._give_up(life, "it lived but did not answer")
        else:
            if life is self._life:
                self.state = state

    async def _give_up(self, life: Life, reason: str) -> None:
        if life is self._life:
            self._ready.clear()
            await asyncio.wait((life.exited,), timeout=1.0)  # usually it is dead, and its own end is the reason
            life.kill(reason)

    async def _live_once(self) -> None:
        """One life of a worker, from its start to its exit."""
        try:
            life = self._life = await self.launch()
        except OSError as error:
            self._mourn(str(error))
            return
        loop = asyncio.get_running_loop()
        too_slow = loop.call_later(
            self._start_timeout_s, life.kill_unstarted, f"it did not answer within {self._start_timeout_s:g} s"
        )
        listening = asyncio.create_task(self._listen(life))
        welcoming = asyncio.create_task(self._welcome(life))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((life.exited, stopping, welcoming), return_when=asyncio.FIRST_COMPLETED)
            if welcoming.done():
                # A worker that is none, or a defect of ours: raised here, or nobody would learn why nothing is ready.
                welcoming.result()
                await asyncio.wait((life.exited, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._life = None
            self._ready.clear()
            too_slow.cancel()
            stopping.cancel()
            welcoming.cancel()
            await life.end(self._grace_s)
            await asyncio.wait((listening,), timeout=1.0)  # what it said last
            listening.cancel()
        if life.ready_at is not None and loop.time() - life.ready_at >= self._stable_s:
            self._num_deaths = 0
        if not self._stopping.is_set():
            self._mourn(life.epitaph)

    def _mourn(self, reason: str) -> None:
        self.last_error = reason
        self._num_deaths += 1
        facts = {"worker": self._name, "pause_s": self._pause_s, "num_restarts": self.num_restarts}
        _log.error("%s ended: %s", self._name, reason, extra=facts)

    async def _listen(self, life: Life) -> None:
        """Passes on what the worker writes, and learns from it when the worker is ready or why it is not."""
        while line := await life.read_line():
            event, level, facts = parse_line(line)
            life.last_line = event
            if event == "fatal":
                life.reason = str(facts.get("reason"))  # logged with its end
                continue
            _log.log(level, event, extra={"worker": self._name, "worker_pid": life.pid, "facts": facts})
            if event == "ready":
                life.said_ready.set()

    async def _welcome(self, life: Life) -> None:
        """Makes a worker that listens one that is ready: what was published is loaded again first."""
        await life.said_ready.wait()
        try:
            await self._welcome_first()
            await self.worker.state()
            life.has_started = True  # from here on it may take its time: loading gigabytes is no sign of death
            await self.ledger.replay(self.worker)
            state = await self.worker.state()
        except EngineError as error:
            await self._give_up(life, f"it could not be made ready: {error}")
            return
        except ConfigError as error:
            if self.state is None:
                raise
            await self._give_up(life, str(error))
            return
        if life is not self._life or life.exited.done():
            return
        life.ready_at = asyncio.get_running_loop().time()
        self.state = state
        self.last_error = None
        self._ready.set()


class SupervisedEngine:
    """The `Engine` of the control process: waits until a worker is ready and hands the request on.

    Every call raises `EngineUnavailable` if no worker comes up in time, `EngineLost` if it dies in the middle.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """The worker's deltas."""
        await self._supervisor.wait_ready()
        try:
            async with aclosing(self._supervisor.worker.generate(request)) as deltas:
                async for delta in deltas:
                    yield delta
        except EngineLost:
            await self._supervisor.recheck()
            raise

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """The worker's scores."""
        await self._supervisor.wait_ready()
        try:
            return await self._supervisor.worker.score(request)
        except EngineLost:
            await self._supervisor.recheck()
            raise

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]:
        """The worker's hidden states."""
        await self._supervisor.wait_ready()
        worker = self._supervisor.worker
        if not isinstance(worker, HiddenReader):
            raise EngineRefused("this engine gives no hidden states")
        try:
            return await worker.hidden(request)
        except EngineLost:
            await self._supervisor.recheck()
            raise

    async def publish(self, publication: Publication) -> None:
        """Returns when a worker has the version and `state` shows it; later workers get it before they are ready.

        One change after the other, in the order of the calls, each to its end even if its caller leaves: what a worker
        was told must be known here. After an `EngineLost` the version may be there or not; publishing again is safe.
        """
        supervisor = self._supervisor
        await self._change(
            partial(supervisor.worker.publish, publication), partial(supervisor.ledger.publish, publication)
        )

    async def retire(self, version: str) -> None:
        """Returns when no new request finds the version; later workers do not get it."""
        supervisor = self._supervisor
        await self._change(partial(supervisor.worker.retire, version), partial(supervisor.ledger.retire, version))

    async def forget_cache(self, salts: Collection[str]) -> None:
        """Returns when no request finds what these salts left. A worker that is gone took its cache with it."""
        supervisor = self._supervisor
        if (asked := supervisor.answering) is None:
            return
        try:
            await supervisor.worker.forget_cache(salts)
        except EngineLost:
            await supervisor.recheck()
            if supervisor.answering == asked:
                raise

    async def state(self) -> EngineState:
        """What the worker said after its last change; waits for one as `generate` does, and asks nobody."""
        return await self._supervisor.wait_ready()

    async def close(self) -> None:
        """Ends the worker and its supervision."""
        for change in self._changes:
            change.cancel()
        await self._supervisor.stop()

    async def _change(self, tell: Callable[[], Awaitable[None]], note: Callable[[], None]) -> None:
        task = asyncio.create_task(self._change_to_its_end(tell, note))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _change_to_its_end(self, tell: Callable[[], Awaitable[None]], note: Callable[[], None]) -> None:
        async with self._changing:
            await self._supervisor.wait_ready()
            try:
                await tell()
                note()
            finally:
                await self._supervisor.recheck()

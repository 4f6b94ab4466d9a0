"""A command line -> an engine process that is always there, or on its way back.

Consumes a worker's death; produces a worker that answers; waits for the exit of the process; woken by it and by
`stop`. A worker that dies is started again after a pause that doubles from `backoff_s` to `max_backoff_s`, and is
`backoff_s` again after a worker that was ready for `stable_s`. Knows processes and readiness; requests only pass
through, and a half-done one is never repeated here: who asked has the tokens and goes on from them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from openclaw_rl.engine.client import SocketEngine
from openclaw_rl.errors import EngineError, EngineLost, EngineUnavailable
from openclaw_rl.types import Delta, EngineState, GenerateRequest, Json

_log = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20


class Supervisor:
    """Keeps one worker alive while `run` runs. Made inside a running event loop.

    The worker gets a pipe as standard input and ends when that closes, lives in a session of its own so that a Ctrl-C
    reaches only us, and writes JSON lines, which become records of our logger.
    """

    def __init__(
        self,
        command: Sequence[str],
        socket: Path,
        *,
        name: str = "engine",
        start_timeout_s: float = 120.0,
        wait_s: float = 60.0,
        max_waiting: int = 256,
        backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        stable_s: float = 60.0,
        grace_s: float = 5.0,
    ) -> None:
        self.engine = SocketEngine(socket)
        self.state: EngineState | None = None
        """What the last worker that answered said about itself."""
        self.last_error: str | None = None
        """Why no worker answers: its own fatal message, or how it ended. None once one is ready."""
        self.num_restarts = 0
        self._command = tuple(command)
        self._socket = socket
        self._name = name
        self._start_timeout_s = start_timeout_s
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._stable_s = stable_s
        self._grace_s = grace_s
        self._pause_s = backoff_s
        self._num_waiting = 0
        self._life: _Life | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a worker answers."""
        return self._ready.is_set()

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
                self._pause_s = min(2 * self._pause_s, self._max_backoff_s)
                self.num_restarts += 1
        finally:
            await self.engine.close()

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
        if self._num_waiting >= self._max_waiting:
            raise EngineUnavailable(f"{self._num_waiting} requests wait for the engine", retry_after_s=retry_after_s)
        timeout_s = self._wait_s if timeout_s is None else timeout_s
        self._num_waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            # Why is for the server's own people (`last_error`): it may name files of this machine.
            message = f"no engine came up within {timeout_s:g} s; /readyz and the server's log say why"
            raise EngineUnavailable(message, retry_after_s=retry_after_s) from None
        finally:
            self._num_waiting -= 1
        assert self.state is not None, "a ready worker has told its state"
        return self.state

    async def recheck(self) -> None:
        """After a broken connection: returns when the worker has answered again or is known to be gone.

        Without this a caller could ask again and again in the moment between a worker's death and our seeing it. A
        worker that lives but does not answer is of no use: it is killed, and so replaced.
        """
        life = self._life
        if life is None or life.ready_at is None:
            return  # the one that broke is gone already, and its successor is still loading
        try:
            await self.engine.state()
        except EngineError:
            if life is self._life:
                self._ready.clear()
                await asyncio.wait((life.exited,), timeout=1.0)  # usually it is dead, and its own end is the reason
                life.kill("it lived but did not answer")

    async def _live_once(self) -> None:
        """One life of a worker, from its start to its exit."""
        self._socket.unlink(missing_ok=True)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True, limit=_MAX_LINE_BYTES
            )
        except OSError as error:
            self._mourn(f"cannot start {self._command[0]}: {error}")
            return
        life = self._life = _Life(process)
        loop = asyncio.get_running_loop()
        too_slow = loop.call_later(
            self._start_timeout_s, life.kill_unready, f"it did not answer within {self._start_timeout_s:g} s"
        )
        listening = asyncio.create_task(self._listen(life))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((life.exited, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._life = None
            self._ready.clear()
            too_slow.cancel()
            stopping.cancel()
            await life.end(self._grace_s)
            await asyncio.wait((listening,), timeout=1.0)  # what it said last
            listening.cancel()
        if life.ready_at is not None and loop.time() - life.ready_at >= self._stable_s:
            self._pause_s = self._backoff_s
        if not self._stopping.is_set():
            self._mourn(life.epitaph)

    def _mourn(self, reason: str) -> None:
        self.last_error = reason
        facts = {"worker": self._name, "pause_s": self._pause_s, "num_restarts": self.num_restarts}
        _log.error("%s ended: %s", self._name, reason, extra=facts)

    async def _listen(self, life: _Life) -> None:
        """Passes on what the worker writes, and learns from it when the worker is ready or why it is not."""
        while line := await life.read_line():
            event, level, facts = _parse_line(line)
            life.last_line = event
            if event == "fatal":
                life.reason = str(facts.get("reason"))  # logged with its end
                continue
            _log.log(level, event, extra={"worker": self._name, "worker_pid": life.pid, "facts": facts})
            if event == "ready":
                with suppress(EngineError):  # if it is gone already, its exit is what counts
                    self._welcome(life, await self.engine.state())

    def _welcome(self, life: _Life, state: EngineState) -> None:
        if life is not self._life or life.exited.done():
            return
        life.ready_at = asyncio.get_running_loop().time()
        self.state = state
        self.last_error = None
        self._ready.set()


class _Life:
    """One worker process, from its start to its exit."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.ready_at: float | None = None
        self.reason: str | None = None
        self.last_line = ""
        self.exited = asyncio.create_task(process.wait())
        self._process = process

    @property
    def epitaph(self) -> str:
        """Why it ended: what it said itself, what we killed it for, or its exit status."""
        if self.reason is not None:
            return self.reason
        status = self._process.returncode or 0
        if status < 0:
            return f"it died of {signal.Signals(-status).name}"
        return f"it ended with exit status {status}" + (f": {self.last_line}" if self.last_line else "")

    def kill(self, reason: str) -> None:
        """SIGKILL to it and what it started."""
        if self._process.returncode is None:
            self.reason = self.reason or reason
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def kill_unready(self, reason: str) -> None:
        """`kill`, unless it has become ready."""
        if self.ready_at is None:
            self.kill(reason)

    async def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL if it has not ended `grace_s` later; returns when the process is gone."""
        try:
            with suppress(ProcessLookupError):
                self._process.terminate()
            await asyncio.wait((self.exited,), timeout=grace_s)
        finally:
            self.kill(f"it did not end within {grace_s:g} s of SIGTERM")
        await asyncio.wait((self.exited,))

    async def read_line(self) -> bytes:
        """The next line of its output; b"" at the end. A line beyond the limit is replaced by a remark."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError:
            return f"a line of more than {_MAX_LINE_BYTES} bytes\n".encode()


class SupervisedEngine:
    """The `Engine` of the control process: waits until a worker is ready and hands the request on."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """The worker's deltas. `EngineUnavailable` if none comes up in time, `EngineLost` if it dies in the middle."""
        await self._supervisor.wait_ready()
        try:
            async with aclosing(self._supervisor.engine.generate(request)) as deltas:
                async for delta in deltas:
                    yield delta
        except EngineLost:
            await self._supervisor.recheck()
            raise

    async def state(self) -> EngineState:
        """What the worker said when it came up; waits for one as `generate` does."""
        return await self._supervisor.wait_ready()

    async def close(self) -> None:
        """Ends the worker and its supervision."""
        await self._supervisor.stop()


def _parse_line(line: bytes) -> tuple[str, int, dict[str, Json]]:
    """The event, level and facts of a log line; a line that is not one of our JSON objects is an event as it is."""
    try:
        facts = json.loads(line)
        event, level = facts.pop("event"), logging.getLevelNamesMapping()[facts.pop("level").upper()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.decode(errors="replace").rstrip(), logging.WARNING, {}
    return str(event), level, facts

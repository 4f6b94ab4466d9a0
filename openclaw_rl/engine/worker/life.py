"""One life of an engine, from its start to its end -> what it says, and why it ended.

An engine of ours lives in a process that we start; one at a URL lives as long as it answers there. Knows nothing of
requests and restarts: those are the supervisor's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.config.environment import worker_environment
from openclaw_rl.types import Json

MAX_LINE_BYTES = 1 << 20


class Life(ABC):
    """An engine that can be listened to, ended politely, and given up."""

    pid: int | None = None
    exited: asyncio.Task[object]
    """Done when the engine is gone."""

    def __init__(self) -> None:
        self.said_ready = asyncio.Event()
        self.has_started = False
        self.ready_at: float | None = None
        self.reason: str | None = None
        self.last_line = ""

    @property
    @abstractmethod
    def epitaph(self) -> str:
        """Why it ended."""

    @abstractmethod
    def kill(self, reason: str) -> None:
        """Ends it at once. What it says for itself comes before `reason`."""

    @abstractmethod
    async def end(self, grace_s: float) -> None:
        """Ends it, within `grace_s` if it can; returns when it is gone."""

    @abstractmethod
    async def read_line(self) -> bytes:
        """The next line that it says; b"" at the end."""

    def kill_unstarted(self, reason: str) -> None:
        """`kill`, unless it has answered."""
        if not self.has_started:
            self.kill(reason)


Launch = Callable[[], Awaitable[Life]]
"""Begins a life; `OSError` if it cannot."""


class ProcessLife(Life):
    """A worker process. It is killed with everything it started."""

    pid: int

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.pid = process.pid
        self.exited = asyncio.create_task(process.wait())
        self._process = process

    @property
    def epitaph(self) -> str:
        """What it said itself, what we killed it for, or its exit status."""
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
        """A line beyond the limit is replaced by a remark."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError:
            return f"a line of more than {MAX_LINE_BYTES} bytes\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLaunch:
    """Starts a worker: a pipe as its standard input, so that it ends when we do, and a session of its own, so that a
    Ctrl-C reaches only us."""

    command: tuple[str, ...]
    socket: Path | None = None
    """Where it listens; what a dead one left there goes first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it needs beside what every worker inherits."""

    async def __call__(self) -> ProcessLife:
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                env={**worker_environment(), **self.environment},
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        except OSError as error:
            raise OSError(f"cannot start {self.command[0]}: {error}") from error
        return ProcessLife(process)


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlLaunch:
    """Watches an engine that others keep alive. `is_missing` and then `is_gone` say what is wrong, or nothing."""

    is_missing: Callable[[], Awaitable[str]]
    is_gone: Callable[[], Awaitable[str]]
    every_s: float = 1.0

    async def __call__(self) -> UrlLife:
        return UrlLife(self)


class UrlLife(Life):
    """An engine at a URL, from when it answers there until it does not."""

    def __init__(self, watched: UrlLaunch) -> None:
        super().__init__()
        self._watched = watched
        self.exited = asyncio.create_task(self._watch())

    @property
    def epitaph(self) -> str:
        return self.reason or "nobody watches it any more"

    def kill(self, reason: str) -> None:
        """Lets go of it; it may go on for others."""
        self.reason = self.reason or (f"{reason}: {self.last_line}" if self.last_line else reason)
        self.exited.cancel()

    async def end(self, grace_s: float) -> None:
        self.kill("nobody watches it any more")
        await asyncio.wait((self.exited,))

    async def read_line(self) -> bytes:
        """It says nothing to us."""
        await asyncio.wait((self.exited,))
        return b""

    async def _watch(self) -> None:
        watched = self._watched
        while True:
            is_here = self.said_ready.is_set()
            self.last_line = await (watched.is_gone() if is_here else watched.is_missing())
            if is_here and self.last_line:
                self.reason = self.reason or self.last_line
                return
            if not self.last_line:
                self.said_ready.set()
            await asyncio.sleep(watched.every_s)


def parse_line(line: bytes) -> tuple[str, int, dict[str, Json]]:
    """The event, level and facts of a log line; a line that is not one of our JSON objects is an event as it is."""
    try:
        facts = json.loads(line)
        event, level = facts.pop("event"), logging.getLevelNamesMapping()[facts.pop("level").upper()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.decode(errors="replace").rstrip(), logging.WARNING, {}
    return str(event), level, facts

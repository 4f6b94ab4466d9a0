"""One process, from its start to its exit -> what it says, and why it ended.

Knows nothing of engines, requests and restarts: those are the supervisor's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress

from openclaw_rl.types import Json

MAX_LINE_BYTES = 1 << 20


class Life:
    """A worker process. It can be read line by line, ended politely, and killed with everything it started."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.said_ready = asyncio.Event()
        self.has_started = False
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

    def kill_unstarted(self, reason: str) -> None:
        """`kill`, unless it has answered."""
        if not self.has_started:
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
            return f"a line of more than {MAX_LINE_BYTES} bytes\n".encode()


def parse_line(line: bytes) -> tuple[str, int, dict[str, Json]]:
    """The event, level and facts of a log line; a line that is not one of our JSON objects is an event as it is."""
    try:
        facts = json.loads(line)
        event, level = facts.pop("event"), logging.getLevelNamesMapping()[facts.pop("level").upper()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.decode(errors="replace").rstrip(), logging.WARNING, {}
    return str(event), level, facts

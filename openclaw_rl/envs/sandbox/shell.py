"""The one shell of a box that lasts: its directory and variables stay from command to command.

It reads commands from a pipe. After each it prints a line that was drawn for this command alone, with the exit code,
so that nothing a command prints can pass for its end.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets

from openclaw_rl.envs.sandbox.command import RunningCommand
from openclaw_rl.envs.sandbox.output import ran
from openclaw_rl.envs.sandbox.warden_link import writable
from openclaw_rl.types import Ran

_MARK_BYTES = 64
"""More than a mark takes: 1 + 32 + 1 + 3 + 1."""


class Shell:
    """`stdin`: the pipe that its commands are written to, which it closes."""

    def __init__(self, command: RunningCommand, stdin: int, max_kept: int) -> None:
        os.set_blocking(stdin, False)
        self._command = command
        self._stdin = stdin
        self._max_kept = max_kept

        self._is_asked = False

    @property
    def is_usable(self) -> bool:
        """Whether it waits for a command."""
        return not self._is_asked and not self._command.ended.done()

    async def ask(self, command: str) -> Ran:
        """Runs one command to its end, which may be the shell's too. After a cancellation the shell is of no use."""
        self._is_asked = True
        search = _Search(secrets.token_hex(16))
        output = self._command.output
        output.begin(search.look)
        quoted = command.replace("'", "'\\''")
        text = f"command eval '{quoted}' </dev/null\ncommand printf '\\n%s %d\\n' {search.name} \"$?\"\n"
        writing = asyncio.create_task(self._write(text.encode(errors="replace")))
        try:
            await asyncio.wait((search.found, self._command.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            writing.cancel()
            await asyncio.wait((writing,))
        if not search.found.done():
            output.drain()
        self._is_asked = False
        if search.found.done():
            exit_code, end = search.found.result()
            return ran(exit_code, output.kept[:end], end, self._max_kept)
        return ran(self._command.ended.result(), output.kept, output.total, self._max_kept)

    def said(self) -> Ran:
        """What the command that was stopped had said."""
        output = self._command.output
        return ran(None, output.kept, output.total, self._max_kept)

    async def stop(self) -> None:
        await self._command.stop()
        self._command.output.drain()

    async def close(self) -> None:
        """May be called twice: by whoever used it last, and with the box."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
            await self._command.close()

    async def _write(self, text: bytes) -> None:
        view = memoryview(text)
        while view:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await writable(self._stdin)
            except BrokenPipeError:
                return  # it has ended, and says so itself


class _Search:
    """Looks for a mark in a stream. `found`: the exit code, and how much had come before the mark."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._mark = re.compile(rb"\n" + name.encode() + rb" (\d{1,3})\n")
        self._window = b""
        self._start = 0
        """Where in the stream the window begins."""

    def look(self, data: bytes) -> None:
        self._window += data
        if not self.found.done() and (match := self._mark.search(self._window)):
            self.found.set_result((int(match[1]), self._start + match.start()))
        gone = max(0, len(self._window) - _MARK_BYTES)
        self._start += gone
        self._window = self._window[gone:]

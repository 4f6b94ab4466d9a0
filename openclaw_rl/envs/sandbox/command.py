"""A command of a box, from its start to its end: one socket to process 1, which tells the end and hears of ours."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Protocol, Self

from openclaw_rl.envs.sandbox.output import Output, output_pipe
from openclaw_rl.envs.sandbox.warden import wire
from openclaw_rl.envs.sandbox.warden.plan import CommandOrder
from openclaw_rl.envs.sandbox.warden_link import answered, sent

_END_S = 10.0
_NOT_STARTED = 126


class RunningCommand(Protocol):
    """`ended`: its exit code as shells tell it, or the `EnvError` that ended the box."""

    output: Output
    ended: asyncio.Task[int]

    async def stop(self) -> None:
        """Ends it with its whole session, and returns when that is done."""
        ...

    async def close(self) -> None:
        """Ends it if it still runs. What it left in the background may go on writing to its output."""
        ...


class Command:
    """A `RunningCommand`."""

    def __init__(self, answers: socket.socket, output: Output) -> None:
        self.output = output
        self._answers = answers
        self.ended = asyncio.create_task(self._wait())

    @classmethod
    async def start(
        cls,
        box: socket.socket,
        order: CommandOrder,
        *,
        stdin: int,
        max_kept: int,
    ) -> Self:
        """`stdin` stays the caller's."""
        ours, theirs = wire.pair()
        ours.setblocking(False)
        reads, writes = output_pipe()
        try:
            await sent(box, order, (theirs.fileno(), stdin, writes))
        except BaseException:
            ours.close()
            os.close(reads)
            raise
        finally:
            theirs.close()
            os.close(writes)
        return cls(ours, Output(reads, max_kept))

    async def stop(self) -> None:
        """Ends it with its whole session, and returns when that is done."""
        with suppress(OSError):
            self._answers.shutdown(socket.SHUT_WR)
        await asyncio.wait((self.ended,), timeout=_END_S)

    async def close(self) -> None:
        """Ends it if it still runs. `output` stays open: what it left in the background may write to it."""
        if not self.ended.done():
            await self.stop()
        self.ended.cancel()
        await asyncio.wait((self.ended,))
        self._answers.close()
        self.output.forget()

    async def _wait(self) -> int:
        message, _ = await answered(self._answers)
        if "refused" in message:
            self.output.kept += f"no process could be started: {message['refused']}\n".encode()
            return _NOT_STARTED
        return int(str(message["ended"]))

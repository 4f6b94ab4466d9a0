"""Commands of a box, whatever it is made of: each in a shell of its own, or in the one that lasts."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from openclaw_rl.envs.sandbox.command import RunningCommand
from openclaw_rl.envs.sandbox.files import as_file
from openclaw_rl.envs.sandbox.output import Output, ran
from openclaw_rl.envs.sandbox.shell import Shell
from openclaw_rl.types import Ran

ENV: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
"""All that a program finds in its environment, before its spec's own."""
_MAX_COMMAND = 128 * 1024 - 1
"""What the kernel takes as one argument."""


class BoxCommands(ABC):
    """The part of a box that has to do with commands. `program`: its shell."""

    def __init__(self, program: str, max_kept: int) -> None:
        self._program = program
        self._max_kept = max_kept
        self._shell: Shell | None = None
        self._shell_is_free = asyncio.Lock()
        self._outputs: list[Output] = []

    @abstractmethod
    async def _begin(self, argv: Sequence[str], stdin: int, env: Mapping[str, str]) -> RunningCommand:
        """Starts a program in the spec's workdir; `stdin` stays the caller's."""

    @abstractmethod
    def check_open(self) -> None:
        """`EnvError` where the box is closed."""

    async def shell(self, command: str, *, timeout_s: float) -> Ran:
        if (refusal := _refused(command)) is not None:
            return refusal
        async with self._shell_is_free:
            self.check_open()
            shell = self._shell = self._shell or await self._new_shell()
            try:
                async with asyncio.timeout(timeout_s):
                    return await shell.ask(command)
            except TimeoutError:
                await shell.stop()
                return shell.said()
            finally:
                if not shell.is_usable:
                    self._shell = None
                    await shell.close()

    async def run(
        self, command: str, *, timeout_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ran:
        if (refusal := _refused(command)) is not None:
            return refusal
        source = as_file(stdin)
        try:
            text = command.encode(errors="replace").decode()  # half a surrogate pair is nothing to hand to a program
            running = await self._start([self._program, "-c", text], source, env or {})
        finally:
            os.close(source)
        exit_code: int | None = None
        try:
            async with asyncio.timeout(timeout_s):
                exit_code = await asyncio.shield(running.ended)
        except TimeoutError:
            await running.stop()
        finally:
            running.output.drain()
            kept, total = running.output.kept, running.output.total
            await running.close()
        return ran(exit_code, kept, total, self._max_kept)

    async def _close_commands(self) -> None:
        if self._shell is not None:
            await self._shell.close()
        for output in self._outputs:
            output.close()

    async def _new_shell(self) -> Shell:
        reads, writes = os.pipe()
        arguments = ["--noprofile", "--norc"] if self._program.endswith("bash") else []
        try:
            command = await self._start([self._program, *arguments], reads, {})
        except BaseException:
            os.close(writes)
            raise
        finally:
            os.close(reads)
        return Shell(command, writes, self._max_kept)

    async def _start(self, argv: Sequence[str], stdin: int, env: Mapping[str, str]) -> RunningCommand:
        self.check_open()
        command = await self._begin(argv, stdin, env)
        self._outputs = [output for output in self._outputs if not output.is_closed]
        self._outputs.append(command.output)
        return command


def _refused(command: str) -> Ran | None:
    """What a real shell would not even start."""
    if "\0" in command:
        return Ran(exit_code=126, output="a command cannot hold a NUL character\n")
    if len(command.encode(errors="replace")) > _MAX_COMMAND:
        return Ran(exit_code=126, output="Argument list too long\n")
    return None

"""A `BoxSpec` -> a box: namespaces of its own, and a root that bubblewrap puts together.

The work is done by a process that knows nothing of ours (`warden/`); here is how the event loop asks for it. What a box
writes lies in memory, up to its limit, and is gone with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.envs.sandbox.box import GATEWAY_IN_THE_BOX, BoxSpec
from openclaw_rl.envs.sandbox.command import Command
from openclaw_rl.envs.sandbox.door import GatewayDoor, gateway_address
from openclaw_rl.envs.sandbox.files import BoxFiles, as_file
from openclaw_rl.envs.sandbox.lacking import missing_programs, unmakeable
from openclaw_rl.envs.sandbox.output import Output, ran
from openclaw_rl.envs.sandbox.shell import Shell
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan, CommandOrder
from openclaw_rl.envs.sandbox.warden_link import WardenLink, answered
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Ran

_START_S = 60.0
_CLOSE_S = 30.0
_MAX_COMMAND = 128 * 1024 - 1
"""What the kernel takes as one argument."""
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
"""All that a program finds in its environment, before its spec's own."""


class BubblewrapSandbox:
    """Makes boxes with bubblewrap. One warden serves them all, and is replaced if it dies."""

    name = "bubblewrap"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._warden: WardenLink | None = None
        self._numbers = count(1)
        self._is_proven = False
        self._is_proving = asyncio.Lock()

    @property
    def warden(self) -> int | None:
        """The process that makes boxes and ends with them; none before the first."""
        return None if self._warden is None else self._warden.pid

    def lacks(self) -> str:
        """Makes a box, to see."""
        if not self._is_proven:
            if reason := missing_programs():
                return reason
            self._warden = WardenLink(self._scratch)
            if reason := unmakeable(self._warden):
                return reason
            self._is_proven = True
        return ""

    async def start(self, spec: BoxSpec) -> BubblewrapBox:
        plan = plan_of(spec)
        if not self._is_proven:
            async with self._is_proving:
                if reason := await asyncio.to_thread(self.lacks):
                    raise EnvError(f"no box can be made here: {reason}")
        if self._warden is None or self._warden.has_died:
            self._warden = WardenLink(self._scratch)
        box = BubblewrapBox(spec, self._warden, next(self._numbers))
        try:
            await box.open(plan)
        except BaseException:
            await box.close()
            raise
        return box


class BubblewrapBox(BoxFiles):
    """A box that runs, until it is closed or something outside of it ends its processes."""

    def __init__(self, spec: BoxSpec, warden: WardenLink, number: int) -> None:
        super().__init__(warden, number, has_layers=bool(spec.layers))
        self._spec = spec
        self._max_kept = spec.limits.output_bytes
        self._box: socket.socket | None = None
        self._program = "/bin/sh"
        self._shell: Shell | None = None
        self._shell_is_free = asyncio.Lock()
        self._outputs: list[Output] = []
        self._door: GatewayDoor | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self, plan: BoxPlan) -> None:
        self._box = await self._warden.call({"do": "make", "box": self._number, "plan": plan.to_json()})
        try:
            async with asyncio.timeout(_START_S):
                said, gifts = await answered(self._box)
        except TimeoutError:
            raise EnvError(f"no box came up within {_START_S:g} s") from None
        if "failed" in said:
            raise EnvError(f"no box could be made: {said['failed']}")
        self._program = str(said["shell"])
        self._upper = gifts.pop(0)
        if plan.door:
            self._door = await GatewayDoor.open(self._spec.gateway, socket.socket(fileno=gifts.pop(0)))

    async def shell(self, command: str, *, timeout_s: float) -> Ran:
        if (refusal := _refused(command)) is not None:
            return refusal
        async with self._shell_is_free:
            self._check_open()
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

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        """All of it, also where the box never came up, or is gone already."""
        if self._box is not None:
            with suppress(EnvError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._warden.ask({"do": "end", "box": self._number})
            self._box.close()
        if self._door is not None:
            await self._door.close()
        if self._shell is not None:
            await self._shell.close()
        for output in self._outputs:
            output.close()
        self.close_files()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise EnvError("the box is closed")

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

    async def _start(self, argv: list[str], stdin: int, env: Mapping[str, str]) -> Command:
        self._check_open()
        assert self._box is not None, "a box is opened before it is used"
        order = CommandOrder(argv=argv, env=_ENV | dict(self._spec.env) | dict(env), cwd=self._spec.workdir)
        command = await Command.start(self._box, order, stdin=stdin, max_kept=self._max_kept)
        self._outputs = [output for output in self._outputs if not output.is_closed]
        self._outputs.append(command.output)
        return command


def plan_of(spec: BoxSpec) -> BoxPlan:
    """Checked; `TaskError` for what no box can be."""
    if spec.image:
        raise TaskError(f"the image {spec.image!r} needs Docker; bubblewrap takes folders of layers")
    for place in (*spec.trees, *spec.read_only):
        if place.split("/")[1:2] in (["proc"], ["dev"]) or place == "/":
            raise TaskError(f"nothing can be put at {place} in a box")
    for place in (*spec.trees, *spec.read_only, spec.workdir):
        if not place.startswith("/") or os.path.normpath(place) != place or "\0" in place:
            raise TaskError(f"a place in a box is an absolute path without detours, got {place!r}")
    for folder in (*spec.layers, *spec.trees.values()):
        if not folder.is_dir():
            raise TaskError(f"{folder} is to be in a box, and is no folder")
    for path in spec.read_only.values():
        if not path.exists():
            raise TaskError(f"{path} is to be in a box, and is not there")
    limits = spec.limits
    if min(limits.memory_mb, limits.processes, limits.disk_mb, limits.output_bytes) < 1:
        raise TaskError(f"the limits of a box are positive numbers, got {limits}")
    if spec.network == "full" and shutil.which("slirp4netns") is None:
        raise TaskError("a box with a network needs slirp4netns; remedy: apt-get install slirp4netns")
    if spec.gateway:
        gateway_address(spec.gateway)
    return BoxPlan(
        layers=tuple(os.path.abspath(layer) for layer in spec.layers),
        trees=tuple((place, os.path.abspath(tree)) for place, tree in spec.trees.items()),
        read_only=tuple((place, os.path.abspath(path)) for place, path in spec.read_only.items()),
        workdir=spec.workdir,
        memory_mb=limits.memory_mb,
        processes=limits.processes,
        disk_mb=limits.disk_mb,
        network=spec.network,
        door=(urlsplit(GATEWAY_IN_THE_BOX).port or 0) if spec.gateway else 0,
    )


def _refused(command: str) -> Ran | None:
    """What a real shell would not even start."""
    if "\0" in command:
        return Ran(exit_code=126, output="a command cannot hold a NUL character\n")
    if len(command.encode(errors="replace")) > _MAX_COMMAND:
        return Ran(exit_code=126, output="Argument list too long\n")
    return None

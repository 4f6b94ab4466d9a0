"""A `BoxSpec` -> a box: namespaces of its own, and a root that bubblewrap puts together.

The work is done by a process that knows nothing of ours (`warden/`); here is how the event loop asks for it. What a box
writes lies in memory, up to its limit, and is gone with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.envs.sandbox.box import GATEWAY_IN_THE_BOX, BoxSpec
from openclaw_rl.envs.sandbox.command import Command
from openclaw_rl.envs.sandbox.commands import ENV, BoxCommands
from openclaw_rl.envs.sandbox.door import GatewayDoor, gateway_address
from openclaw_rl.envs.sandbox.files import BoxFiles
from openclaw_rl.envs.sandbox.lacking import missing_network, missing_programs, unmakeable
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan, CommandOrder
from openclaw_rl.envs.sandbox.warden_link import WardenLink, answered
from openclaw_rl.errors import EnvError, TaskError

_START_S = 60.0
_CLOSE_S = 30.0
_MIN_MEMORY_MB = 16
"""What it takes that a program too many is killed, and not the box: its own processes are counted with it."""


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


class BubblewrapBox(BoxCommands, BoxFiles):
    """A box that runs, until it is closed or something outside of it ends its processes."""

    def __init__(self, spec: BoxSpec, warden: WardenLink, number: int) -> None:
        BoxCommands.__init__(self, "/bin/sh", spec.limits.output_bytes)
        BoxFiles.__init__(self, warden, number, has_layers=bool(spec.layers))
        self._spec = spec
        self._box: socket.socket | None = None
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
        await self._close_commands()
        self.close_files()

    def check_open(self) -> None:
        if self._closing is not None:
            raise EnvError("the box is closed")

    async def _begin(self, argv: Sequence[str], stdin: int, env: Mapping[str, str]) -> Command:
        assert self._box is not None, "a box is opened before it is used"
        order = CommandOrder(argv=list(argv), env={**ENV, **self._spec.env, **env}, cwd=self._spec.workdir)
        return await Command.start(self._box, order, stdin=stdin, max_kept=self._max_kept)


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
    if min(limits.processes, limits.disk_mb, limits.output_bytes) < 1 or limits.memory_mb < _MIN_MEMORY_MB:
        raise TaskError(
            f"the limits of a box are positive numbers, its memory {_MIN_MEMORY_MB} MB or more, got {limits}"
        )
    if spec.network == "full" and (reason := missing_network()):
        raise TaskError(reason)
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

"""Which sandbox this machine has: bubblewrap where it makes boxes, or else Docker where an engine answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from openclaw_rl.envs.sandbox.box import Box, BoxSpec, Sandbox
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.sandbox.docker import DockerSandbox
from openclaw_rl.envs.sandbox.docker_images import is_image
from openclaw_rl.errors import EnvError, TaskError


class EitherSandbox:
    """Boxes of the first that works here; those that are made of Docker's images are Docker's in any case.

    What was chosen once stays: an engine that is away for a moment fails a box, and changes none.
    """

    def __init__(self, plain: Sandbox, docker: Sandbox) -> None:
        self._plain = plain
        self._docker = docker
        self._chosen: Sandbox | None = None
        self._choosing = asyncio.Lock()

    @property
    def name(self) -> str:
        return (self._chosen or self._plain).name

    def lacks(self) -> str:
        if self._chosen is not None:
            return ""
        reasons = []
        for one in (self._plain, self._docker):
            if not (reason := one.lacks()):
                self._chosen = one
                return ""
            reasons.append(reason)
        return "; or else with Docker: ".join(reasons)

    async def start(self, spec: BoxSpec) -> Box:
        if await asyncio.to_thread(is_image, spec):
            if reason := await asyncio.to_thread(self._docker.lacks):
                raise TaskError(
                    f"the image {spec.image!r} needs Docker: {reason}; or bring the image's files as a folder"
                )
            return await self._docker.start(spec)
        async with self._choosing:
            reason = await asyncio.to_thread(self.lacks)
        if reason or self._chosen is None:
            raise EnvError(f"no box can be made here: {reason}")
        return await self._chosen.start(spec)


def make_sandbox(scratch: Path, *, kind: Literal["auto", "bubblewrap", "docker"] = "auto") -> Sandbox:
    """A sandbox whose boxes keep what they need on disk under `scratch`."""
    match kind:
        case "auto":
            return EitherSandbox(BubblewrapSandbox(scratch), DockerSandbox())
        case "bubblewrap":
            return BubblewrapSandbox(scratch)
        case "docker":
            return DockerSandbox()

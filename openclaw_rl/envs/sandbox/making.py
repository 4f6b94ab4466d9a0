"""Which sandbox this machine has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from openclaw_rl.envs.sandbox.box import Box, BoxSpec, Sandbox
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.sandbox.docker import DockerSandbox, is_image
from openclaw_rl.errors import TaskError


class EitherSandbox:
    """Boxes of bubblewrap; and of Docker, where an engine runs, for those that are made of its images."""

    def __init__(self, plain: Sandbox, docker: Sandbox) -> None:
        self._plain = plain
        self._docker = docker

    @property
    def name(self) -> str:
        return self._plain.name

    def lacks(self) -> str:
        return self._plain.lacks()

    async def start(self, spec: BoxSpec) -> Box:
        if not await asyncio.to_thread(is_image, spec):
            return await self._plain.start(spec)
        if reason := await asyncio.to_thread(self._docker.lacks):
            raise TaskError(f"the image {spec.image!r} needs Docker: {reason}")
        return await self._docker.start(spec)


def make_sandbox(scratch: Path, *, kind: Literal["auto", "bubblewrap", "docker"] = "auto") -> Sandbox:
    """A sandbox whose boxes keep what they need on disk under `scratch`."""
    match kind:
        case "auto":
            return EitherSandbox(BubblewrapSandbox(scratch), DockerSandbox())
        case "bubblewrap":
            return BubblewrapSandbox(scratch)
        case "docker":
            return DockerSandbox()

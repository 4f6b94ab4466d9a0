"""A room that is a bare box: what programs of harnesses do in one, without a track around it."""

from __future__ import annotations

from collections.abc import Mapping

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.types import Ran
from tests.fakes.rooms import FakeRoom


class BoxRoom(FakeRoom):
    """Its commands run in the box."""

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        return await self.box.run(command, timeout_s=timeout_s, env=env)

"""One attempt at a task: a box with the agent's tree, and the grade of what is left there."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path

from openclaw_rl.envs.sandbox.box import Box, Sandbox
from openclaw_rl.envs.swe.grading import Material, grade
from openclaw_rl.envs.swe.patches import sort_changes
from openclaw_rl.envs.swe.suite import TESTBED
from openclaw_rl.envs.swe.trees import MAX_TREE_MB, apply_patch
from openclaw_rl.envs.tools import CALLS, tool, use_tool
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Grade, Message, Observation, Opening, Ran, ToolCall

ATTEMPT_S = 1800.0
COMMAND_S = 120.0


class SweRoom:
    """`protocols.Room`. The trees are made when it is opened, not before."""

    def __init__(
        self,
        material: Callable[[], Awaitable[Material]],
        *,
        sandbox: Sandbox,
        gateway: str,
        programs: Mapping[str, Path],
    ) -> None:
        self._prepare = material
        self._sandbox = sandbox
        self._gateway = gateway
        self._programs = programs
        self._material: Material | None = None
        self._box: Box | None = None

    async def open(self) -> Opening:
        """A box anew, also where one was open."""
        await self.close()
        material = self._material = await self._prepare()
        self._box = await self._sandbox.start(material.spec(material.trees.agent, self._programs, self._gateway))
        system, task = (files("openclaw_rl.envs.swe").joinpath(name).read_text("utf-8") for name in _PROMPTS)
        asked = task.strip().replace("{problem}", material.row.problem_statement.strip())
        messages = (Message(role="system", content=system.strip()), Message(role="user", content=asked))
        return Opening(messages=messages, tools=tuple(map(tool, CALLS)), workdir=TESTBED, timeout_s=ATTEMPT_S)

    async def solve(self) -> None:
        material, box = self._opened()
        if not material.row.patch:
            raise TaskError(f"{material.row.instance_id} has no patch of its author")
        if why := await apply_patch(box, material.row.patch):
            raise TaskError(f"{material.row.instance_id}: the patch of its author does not apply: {why}")

    async def step(self, call: ToolCall) -> Observation:
        return await use_tool(self._opened()[1], call, tuple(CALLS), workdir=TESTBED, command_s=COMMAND_S)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        return await self._opened()[1].run(command, timeout_s=timeout_s, env=env)

    async def evaluate(self) -> Grade:
        material, box = self._opened()
        with tempfile.TemporaryDirectory() as scratch:
            left = Path(scratch) / "left"
            await box.copy_out(TESTBED, left, max_bytes=2 * MAX_TREE_MB << 20)
            work = await asyncio.to_thread(sort_changes, material.trees.agent, left, material.rules)
        return await grade(material, work, self._sandbox)

    async def close(self) -> None:
        if self._box is not None:
            await self._box.close()
            self._box = None

    def _opened(self) -> tuple[Material, Box]:
        if self._material is None or self._box is None:
            raise EnvError("the room is not open")
        return self._material, self._box


_PROMPTS = ("system.txt", "task.txt")

"""A Python interpreter in a box -> a toolbox. Variables stay from call to call.

Code that never ends, or that takes the interpreter down, costs what it had computed: a new interpreter takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.boxes import own_program
from openclaw_rl.envs.toolcall.mcp.boxed import BoxWire
from openclaw_rl.envs.toolcall.mcp.client import McpTools
from openclaw_rl.envs.toolcall.mcp.wire import AnswerLate, WireBroken
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments
from openclaw_rl.types import Observation, Tool

_LIMITS = BoxLimits(memory_mb=1024, processes=64, disk_mb=256)


class PythonTool:
    """A `Toolbox` with the one tool `python`."""

    def __init__(self, sandbox: Sandbox, *, timeout_s: float = 30.0) -> None:
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._program = self._new()

    @property
    def tools(self) -> Sequence[Tool]:
        return self._program.tools

    async def open(self) -> None:
        """Starts it."""
        await self._program.open()

    async def call(self, name: str, arguments: Arguments) -> Observation:
        try:
            return await self._program.call(name, arguments)
        except AnswerLate:
            lost = f"The code took longer than {self._timeout_s:g} s and was stopped."
        except WireBroken:
            lost = "The code took the interpreter down; perhaps it needed too much memory."
        await self._program.close()
        self._program = self._new()
        await self._program.open()
        return Observation(content=f"{lost} A new interpreter has begun; all variables are lost.", is_error=True)

    async def close(self) -> None:
        await self._program.close()

    def _new(self) -> McpTools:
        wire = BoxWire(self._sandbox, BoxSpec(limits=_LIMITS), own_program("interpreter"))
        return McpTools(wire, name="the Python interpreter", timeout_s=self._timeout_s)

"""Functions of a tools JSON -> a toolbox. Every call is a process of its own in a box, so functions remember nothing.

The box shows the folder that the tools JSON lies in, read-only, and begins there. What the call did wrong, such as an
error that the function raises or a call that takes too long, is an observation.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from openclaw_rl.envs.sandbox.box import Box, BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.boxes import own_program, with_python
from openclaw_rl.envs.toolcall.resident.call import NOT_FOUND
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments
from openclaw_rl.envs.toolcall.tools.tools_file import FunctionEntry
from openclaw_rl.errors import EnvError
from openclaw_rl.types import Observation, Tool

FOLDER = "/tools"
"""Where a box shows the folder of the tools JSON."""
_NO_PROGRAM = frozenset({126, 127, NOT_FOUND})


class BoxedFunctions:
    """A `Toolbox` of functions of the user's own."""

    def __init__(self, sandbox: Sandbox, folder: Path, entries: Sequence[FunctionEntry]) -> None:
        self.tools = tuple(
            Tool(name=entry.name, description=entry.description, parameters=entry.parameters) for entry in entries
        )
        self._sandbox = sandbox
        self._folder = folder
        self._entries: Mapping[str, FunctionEntry] = {entry.name: entry for entry in entries}
        self._boxes: dict[bool, Box] = {}

    async def open(self) -> None:
        """Boxes are made for the first call that needs them."""

    async def call(self, name: str, arguments: Arguments) -> Observation:
        entry = self._entries[name]
        command = own_program("call", FOLDER, entry.python) if entry.python else (entry.command or ())
        box = await self._box(network=entry.network)
        ran = await box.run(shlex.join(command), timeout_s=entry.timeout_s, stdin=json.dumps(dict(arguments)).encode())
        if ran.exit_code in _NO_PROGRAM:
            raise EnvError(f"the function {name} of the tools JSON does not work: {ran.output.strip()[-500:]}")
        if ran.exit_code is None:
            return Observation(content=f"{name} took longer than {entry.timeout_s:g} s and was stopped.", is_error=True)
        return Observation(content=ran.output.strip(), is_error=ran.exit_code != 0)

    async def close(self) -> None:
        for box in self._boxes.values():
            await box.close()

    async def _box(self, *, network: bool) -> Box:
        if network not in self._boxes:
            spec = BoxSpec(read_only={FOLDER: self._folder}, workdir=FOLDER, network="full" if network else "none")
            self._boxes[network] = await self._sandbox.start(with_python(spec))
        return self._boxes[network]

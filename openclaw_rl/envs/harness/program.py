"""A real agent program in the box of a room: it is told the task and where the model is, and works until it ends.

It reaches the gateway at one address in the box, whoever's machine the box is on. What it asks there the gateway tells
apart by itself: its titles and summaries are side, its work is main. A program that ends with an error raises
`HarnessFailed`: it may be that it never came to ask the model, and that says nothing of the agent.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.clients import Served
from openclaw_rl.envs.harness.asking import GatewayAsker
from openclaw_rl.envs.harness.launches import SETTINGS, Launch
from openclaw_rl.envs.harness.programs import ProgramShelf
from openclaw_rl.envs.sandbox.box import GATEWAY_IN_THE_BOX
from openclaw_rl.errors import EnvError, HarnessFailed
from openclaw_rl.protocols import Room
from openclaw_rl.types import Door, EndOfAttempt, Opening

_SAID_BYTES = 4000


class ProgramHarness:
    """A program of others, which is found on a shelf of this machine."""

    def __init__(self, launch: Launch, shelf: ProgramShelf) -> None:
        self._launch = launch
        self._shelf = shelf

    @property
    def name(self) -> str:
        return self._launch.name

    def install(self) -> None:
        """Fetches what is not there yet. Blocking, for minutes."""
        for program in self._launch.needs:
            self._shelf.install(program)

    def programs(self) -> Mapping[str, Path]:
        shown: dict[str, Path] = {}
        for program in self._launch.needs:
            try:
                shown |= self._shelf.shown(program)
            except EnvError as error:
                raise EnvError(f"{error}; run `openclaw-rl env install {self.name}`") from None
        return shown

    async def attempt(self, room: Room, opening: Opening, door: Door) -> EndOfAttempt:
        async with GatewayAsker(door) as asker:
            window = await asker.window()
        served = Served(url=GATEWAY_IN_THE_BOX, model=door.model, window=window, key=door.key)
        script = _script(self._launch, served, opening)
        ran = await room.run(script, timeout_s=opening.timeout_s, env=self._launch.env(served))
        if ran.exit_code is None:
            return "timeout"
        if ran.exit_code:
            raise HarnessFailed(
                f"{self.name} ended with exit status {ran.exit_code}: {ran.output.strip()[-_SAID_BYTES:]}"
            )
        return "finished"


def _script(launch: Launch, served: Served, opening: Opening) -> str:
    """Writes the settings and runs the program, and prints the end of what it said.

    Through a file, because what a program leaves running may hold a pipe open for ever.
    """
    task, said = f"{SETTINGS}/task", f"{SETTINGS}/said"
    files = {**launch.files(served, opening), task: opening.instruction}
    return "\n".join(
        (
            "set -e",
            f"mkdir -p -m 700 {SETTINGS}",
            *(f"printf %s {shlex.quote(text)} >{path}" for path, text in files.items()),
            f"cd {shlex.quote(opening.workdir)}",
            "status=0",
            f"{shlex.join(launch.words(served, opening))} <{task if launch.reads_task else '/dev/null'} >{said} 2>&1 "
            "|| status=$?",
            f"tail -c {_SAID_BYTES} {said}",
            "exit $status",
        )
    )

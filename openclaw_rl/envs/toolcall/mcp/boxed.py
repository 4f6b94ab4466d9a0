"""A program in a box, over its stdin and stdout: `resident/relay.py` keeps it running there and carries messages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from openclaw_rl.envs.sandbox.box import Box, BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.boxes import own_program, with_python
from openclaw_rl.envs.toolcall.mcp.wire import MAX_ANSWER_BYTES, AnswerLate, WireBroken
from openclaw_rl.errors import EnvError
from openclaw_rl.types import Json

_SOCKET = "/tmp/openclaw-rl.sock"  # noqa: S108  in the box, which has a /tmp of its own
_START_S = 60.0
_MARGIN_S = 30.0


class BoxWire:
    """A `McpWire` to the program that `command` starts in a box of its own."""

    def __init__(self, sandbox: Sandbox, spec: BoxSpec, command: Sequence[str]) -> None:
        self._sandbox = sandbox
        self._spec = replace(with_python(spec), limits=replace(spec.limits, output_bytes=2 * MAX_ANSWER_BYTES))
        self._command = command
        self._box: Box | None = None
        self._has_spoken = False

    async def open(self) -> None:
        self._box = await self._sandbox.start(self._spec)
        serve = shlex.join([*own_program("relay", "serve", _SOCKET), "--", *self._command])
        ran = await self._box.run(serve, timeout_s=_START_S)
        if ran.exit_code != 0:
            raise EnvError(f"{self._command[0]} could not be started in a box: {ran.output.strip()[-500:]}")

    async def exchange(
        self, message: Mapping[str, Json], *, timeout_s: float, headers: Mapping[str, str]
    ) -> Mapping[str, Json] | None:
        assert self._box is not None
        ask = shlex.join(own_program("relay", "ask", _SOCKET, str(timeout_s)))
        ran = await self._box.run(ask, timeout_s=timeout_s + _MARGIN_S, stdin=json.dumps(message).encode())
        told = _told(ran.output) if ran.exit_code == 0 and not ran.is_cut else None
        if told is None:
            raise WireBroken(f"{self._program} is out of reach in its box: {ran.output.strip()[-500:]}")
        if "reply" in told:
            self._has_spoken = True
            reply: Mapping[str, Json] | None = told["reply"]
            return reply
        if "timeout" in told:
            raise AnswerLate(f"{self._program} gave no answer within {timeout_s:g} s{self._remedy}")
        ((what, how),) = told.items()
        raise WireBroken(f"{self._program}: {what}: {how}")

    async def close(self) -> None:
        if self._box is not None:
            await self._box.close()

    @property
    def _remedy(self) -> str:
        if self._has_spoken or self._spec.network != "none":
            return ""
        return '; a program that is fetched first, as by npx or uvx, needs "network": true beside its command'

    @property
    def _program(self) -> str:
        return shlex.join(self._command)[:200]


def _told(output: str) -> Mapping[str, Json] | None:
    try:
        told = json.loads(output)
    except ValueError:
        return None
    return told if isinstance(told, dict) and len(told) == 1 else None

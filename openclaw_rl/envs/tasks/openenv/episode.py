"""One episode at an OpenEnv server: messages to results, over one WebSocket. Knows no tasks and no agents.

What the agent did wrong is an `ActionRefused`. What the server failed at is an `EnvError`, after which the episode is
over: an answer that comes late must not be taken for that to the next message.
"""

from __future__ import annotations

import asyncio

import aiohttp
import orjson
from pydantic import ValidationError

from openclaw_rl.envs.tasks.openenv.address import ServerAddress
from openclaw_rl.envs.tasks.openenv.shapes import (
    MAX_MESSAGE_BYTES,
    ErrorCode,
    ServerMessage,
    ServerRefusal,
    StepResult,
)
from openclaw_rl.envs.tasks.openenv.wire import SocketEnd
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone
from openclaw_rl.types import Json

_CONNECT_TIMEOUT_S = 10.0
_PING_S = 20.0
_AGENTS_FAULTS = frozenset({ErrorCode.VALIDATION_ERROR, ErrorCode.EXECUTION_ERROR})


class ActionRefused(Exception):
    """The server did not take an action, or failed while it carried it out."""


class ServerEpisode:
    """`reset` once, then `step`. Made with `open_episode`, and closed by who made it."""

    def __init__(self, wire: SocketEnd, address: ServerAddress, answer_timeout_s: float) -> None:
        self._wire = wire
        self._host = address.host
        self._answer_timeout_s = answer_timeout_s
        self._is_waiting = False

    async def reset(self, wish: dict[str, Json]) -> StepResult:
        told = await self._ask({"type": "reset", "data": wish})
        if isinstance(told, ServerRefusal):
            raise EnvError(f"{self._host} cannot begin the task: {told}")
        return told

    async def step(self, action: dict[str, Json]) -> StepResult:
        told = await self._ask({"type": "step", "data": action})
        if isinstance(told, ServerRefusal):
            raise ActionRefused(str(told))
        return told

    async def close(self) -> None:
        await self._wire.send({"type": "close"})
        await self._wire.close()

    async def _ask(self, message: dict[str, Json]) -> StepResult | ServerRefusal:
        if self._is_waiting:
            raise EnvError(f"{self._host} still owes the answer to an earlier action; begin the attempt anew")
        self._is_waiting = True
        # A server that has no room says so and closes: its word is read although ours could not be sent.
        await self._wire.send(message)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                raw = await self._wire.receive()
        except TimeoutError:
            raise EnvError(f"{self._host} gave no answer within {self._answer_timeout_s:g} s") from None
        if raw is None:
            raise EnvGone(f"the connection to {self._host} was lost in the middle of an attempt")
        told = self._read(raw)
        if isinstance(told, StepResult) or told.code in _AGENTS_FAULTS:
            self._is_waiting = False
            return told
        if told.code == ErrorCode.CAPACITY_REACHED:
            raise EnvBusy(f"{self._host} has no room free: {told}")
        raise EnvError(f"{self._host} failed: {told} ({told.code})")

    def _read(self, raw: str) -> StepResult | ServerRefusal:
        try:
            return ServerMessage.model_validate({"told": orjson.loads(raw)}).told.data
        except (ValidationError, orjson.JSONDecodeError) as error:
            raise EnvError(f"{self._host} does not answer as an OpenEnv server does: {error}") from error


async def open_episode(
    address: ServerAddress, session: aiohttp.ClientSession, *, answer_timeout_s: float
) -> ServerEpisode:
    """Connects. Each connection is an instance of the environment."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            socket = await session.ws_connect(f"{address.ws}/ws", heartbeat=_PING_S, max_msg_size=MAX_MESSAGE_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = f"{address.host} does not answer ({type(error).__name__}); is the OpenEnv server running?"
        raise EnvGone(reason) from error
    return ServerEpisode(SocketEnd(socket), address, answer_timeout_s)

"""A worker's socket -> the `Engine` protocol, for the control process.

Knows the wire format and nothing of processes: whether and when a dead worker comes back is the supervisor's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp

from openclaw_rl.engine import wire
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import Delta, EngineState, GenerateRequest

_BASE = "http://engine"  # the host is ignored on a Unix socket
_GENERATE = f"{_BASE}/inference/v1/generate"
_HEADERS = {"content-type": "application/json"}


class SocketEngine:
    """An engine behind a Unix socket. Made and closed inside a running event loop.

    Closing the iterator of `generate` closes its connection, which the worker takes as a cancellation.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(socket), limit=0, keepalive_timeout=3600.0),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas until one with a finish reason; tokens that were already waiting come as one delta."""
        body = wire.dumps(wire.request_to_json(request))
        try:
            async with self._session.post(_GENERATE, data=body, headers=_HEADERS) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.read())
                events = _Events()
                async for data in response.content.iter_any():
                    deltas = events.feed(data)
                    if events.ended:
                        # Read to the end before the caller sees the last delta and drops the iterator: a connection
                        # that was read to its end is used again, any other is closed.
                        await response.read()
                    for delta in deltas:
                        yield delta
                    if events.error is not None:
                        raise events.error
                if not events.ended:
                    raise EngineLost("the engine ended the stream without a finish reason")
        except (aiohttp.ClientError, OSError) as error:
            raise EngineLost(f"the connection to the engine at {self._socket} broke: {error}") from error

    async def state(self) -> EngineState:
        """What the worker says about itself; `EngineLost` when it does not answer."""
        try:
            async with self._session.get(f"{_BASE}/health") as response:
                body = await response.read()
                if response.status != 200:
                    raise _refusal(response.status, body)
                return wire.state_from_json(wire.loads(body))
        except (aiohttp.ClientError, OSError) as error:
            raise EngineLost(f"the engine at {self._socket} does not answer: {error}") from error

    async def close(self) -> None:
        """Closes all connections, and so cancels what still runs."""
        await self._session.close()


class _Events:
    """Server-sent events, cut anywhere, to deltas."""

    def __init__(self) -> None:
        self.ended = False
        self.error: EngineError | None = None
        self._rest = b""

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas that are complete now. After an error event nothing follows."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        deltas: list[Delta] = []
        for event in events:
            if event == b"data: [DONE]":
                continue
            raw = wire.loads(event[6:])  # after "data: "
            if "error" in raw:
                self.error = EngineError(raw["error"]["message"])
            else:
                deltas.append(wire.delta_from_json(raw))
        self.ended = self.ended or (bool(deltas) and deltas[-1].finish_reason is not None)
        return wire.coalesce(deltas)


def _refusal(status: int, body: bytes) -> EngineError:
    try:
        error = wire.loads(body)["error"]
        message, code = str(error["message"]), error["code"]
    except (ValueError, TypeError, KeyError):
        return EngineError(f"the engine answered {status} with a body that is not an error object")
    if status == 503:
        return EngineUnavailable(message, retry_after_s=1)
    if status >= 500:
        return EngineError(message)
    return EngineRefused(message, status=status, code=code)

"""An address -> the `Engine` protocol, for the control process.

Speaks the wire format of our `server.py`, on a Unix socket or at a base URL, over connections that it keeps, with HTTP
written by hand like the other side: aiohttp's client took about 15 % of the gateway's time under load. Knows nothing of
processes: whether and when a dead worker comes back is the supervisor's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.http import MAX_BODY_BYTES
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Hidden,
    HiddenRequest,
    Publication,
    Scored,
    ScoreRequest,
)

_GENERATE = "POST /inference/v1/generate"
_SCORE = "POST /inference/v1/score"
_HIDDEN = "POST /inference/v1/hidden"
_PUBLISH = "POST /v1/versions/publish"
_RETIRE = "POST /v1/versions/retire"
_FORGET_CACHE = "POST /v1/cache/forget"
_HEALTH = "GET /health"
_HIGH_WATER_BYTES = 1 << 20
"""More than this waiting for a slow reader, and the worker is told to wait too."""


class SocketEngine:
    """An engine behind a Unix socket (a path) or a base URL (`http://host:8000`). Made and closed inside a running
    event loop.

    Closing the iterator of `generate`, or cancelling any other call, closes its connection, which the worker takes as a
    cancellation. Nothing here has a time limit: loading a version may take minutes.
    """

    def __init__(self, address: Path | str) -> None:
        self._address = address
        url = urlsplit("http://engine" if isinstance(address, Path) else address)
        self._host, self._prefix = url.netloc, url.path.rstrip("/")
        self._idle: list[_WorkerConnection] = []

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas until one with a finish reason; tokens that were already waiting come as one delta."""
        connection = await self._ask(_GENERATE, wire.dumps(wire.request_to_json(request)))
        try:
            events = _WorkerEvents()
            while data := await connection.read():
                if connection.status != 200:
                    raise _refusal(connection.status, data + await connection.read_rest())
                deltas = events.feed(data)
                if events.ended:
                    # Read to the end before the caller sees the last delta and drops the iterator: a connection
                    # that was read to its end is used again, any other is closed.
                    await connection.read_rest()
                for delta in deltas:
                    yield delta
                if events.error is not None:
                    raise events.error
            if not events.ended:
                raise EngineLost("the engine ended the stream without a finish reason")
        finally:
            self._put_back(connection)

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """The log-probs of every sequence."""
        body = await self._fetch(_SCORE, wire.dumps(wire.score_request_to_json(request)))
        # In a thread: 8192 positions with top-20 take 0.15 s to read, and others are served here meanwhile.
        return await asyncio.to_thread(lambda: wire.scores_from_json(wire.loads(body)))

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]:
        """The base model's hidden states."""
        body = await self._fetch(_HIDDEN, wire.dumps(wire.hidden_request_to_json(request)))
        return await asyncio.to_thread(lambda: wire.hidden_from_json(wire.loads(body)))

    async def publish(self, publication: Publication) -> None:
        """Returns when the version is loaded; if the connection breaks before, it may be loaded or not."""
        await self._fetch(_PUBLISH, wire.dumps(wire.publication_to_json(publication)))

    async def retire(self, version: str) -> None:
        """Returns when the version takes no more requests."""
        await self._fetch(_RETIRE, wire.dumps({"version": version}))

    async def forget_cache(self, salts: Collection[str]) -> None:
        """Returns when no request finds what these salts left."""
        await self._fetch(_FORGET_CACHE, wire.dumps(wire.salts_to_json(salts)))

    async def state(self) -> EngineState:
        """What the worker says about itself; `EngineLost` when it does not answer."""
        return wire.state_from_json(wire.loads(await self._fetch(_HEALTH, b"")))

    async def close(self) -> None:
        """Closes the connections that nobody uses; the others are closed by who uses them."""
        while self._idle:
            self._idle.pop().close()

    async def _fetch(self, route: str, body: bytes) -> bytes:
        """The whole answer."""
        connection = await self._ask(route, body)
        try:
            answer = await connection.read_rest()
            if connection.status != 200:
                raise _refusal(connection.status, answer)
            return answer
        finally:
            self._put_back(connection)

    async def _ask(self, route: str, body: bytes) -> _WorkerConnection:
        """A connection on which the request is under way."""
        if len(body) > MAX_BODY_BYTES:
            message = f"the request has {len(body)} bytes; at most {MAX_BODY_BYTES} are sent: ask in smaller parts"
            raise EngineRefused(message, status=413, code="request_too_large")
        connection = None
        while self._idle and connection is None:
            kept = self._idle.pop()
            connection = kept if kept.is_open else None
        if connection is None:
            try:
                connection = await self._connect()
            except OSError as error:
                raise EngineLost(f"the engine does not answer: {type(error).__name__}") from error
        method, path = route.split(" ")
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.send(head.encode() + body)
        return connection

    async def _connect(self) -> _WorkerConnection:
        loop = asyncio.get_running_loop()
        if isinstance(self._address, Path):
            return (await loop.create_unix_connection(_WorkerConnection, str(self._address)))[1]
        url = urlsplit(self._address)
        is_secure = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if is_secure else 80)
        return (await loop.create_connection(_WorkerConnection, host, port, ssl=is_secure or None))[1]

    def _put_back(self, connection: _WorkerConnection) -> None:
        if connection.is_read and connection.is_open:
            self._idle.append(connection)
        else:
            connection.close()


class _WorkerConnection(asyncio.Protocol):
    """One kept connection: requests out, the bodies of answers in, whole or in chunks.

    What arrives between two reads is one read, so that a slow reader gets many tokens at once.
    """

    def __init__(self) -> None:
        self.status = 0
        self.is_open = True
        self.is_read = True
        """Whether the last answer was read to its end."""
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._left: int | None = None
        self._news = asyncio.Event()
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are, without inheriting from it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._news.set()
        if len(self._buffer) > _HIGH_WATER_BYTES and not self._paused and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._news.set()

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self.status, self.is_read, self._left = 0, False, None
        self._transport.write(request)

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    async def read(self) -> bytes:
        """What has arrived of the body and was not read yet; b"" at its end. `EngineLost` if it breaks off."""
        while True:
            if self.status == 0:
                self._take_head()
            data = self._take()
            if data or self.is_read:
                return data
            if not self.is_open:
                raise EngineLost("the connection to the engine broke")
            self._news.clear()
            if self._paused and self._transport is not None:
                self._transport.resume_reading()
                self._paused = False
            await self._news.wait()

    async def read_rest(self) -> bytes:
        """The rest of the body."""
        parts = []
        while data := await self.read():
            parts.append(data)
        return b"".join(parts)

    def _take_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        del self._buffer[: end + 4]
        self.status = int(head[9:12])
        _, found, rest = head.partition(b"content-length:")
        self._left = int(rest.partition(b"\r\n")[0]) if found else None

    def _take(self) -> bytes:
        if self.status == 0 or self.is_read:
            return b""
        if self._left is None:
            return self._take_chunks()
        data = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._left -= len(data)
        self.is_read = self._left == 0
        return data

    def _take_chunks(self) -> bytes:
        """Every chunk that is complete."""
        parts: list[bytes] = []
        at = 0
        while (line := self._buffer.find(b"\r\n", at)) >= 0:
            size = int(self._buffer[at:line], 16)
            end = line + 2 + size
            if len(self._buffer) < end + 2:
                break
            at = end + 2
            if size == 0:
                self.is_read = True
                break
            parts.append(bytes(self._buffer[line + 2 : end]))
        del self._buffer[:at]
        return b"".join(parts)


class _WorkerEvents:
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

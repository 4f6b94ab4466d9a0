"""Requests to an engine, and what it answers: HTTP on a Unix socket or at a base URL, over connections that are kept.

Written by hand like the other side: aiohttp's client took about 15 % of the gateway's time under load. Knows no shape
of a request, and nothing of processes: whether and when a dead engine comes back is the supervisor's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.http import MAX_BODY_BYTES
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import Json

_HIGH_WATER_BYTES = 1 << 20
"""More than this waiting for a slow reader, and the engine is told to wait too."""


class HttpAnswer(NamedTuple):
    """A whole answer, whatever it says."""

    status: int
    body: bytes


class Connections:
    """To an engine behind a Unix socket (a path) or a base URL (`http://host:8000`). Used inside a running event loop.

    A connection that was read to its end is used again within `max_idle_s`: then its other end may be closing it.
    """

    def __init__(
        self, address: Path | str, *, headers: Mapping[str, str] | None = None, max_idle_s: float = float("inf")
    ) -> None:
        self.address = address
        url = urlsplit("http://engine" if isinstance(address, Path) else address)
        named = {"host": url.netloc, **(headers or {})}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._prefix = url.path.rstrip("/")
        self._max_idle_s = max_idle_s
        self._idle: list[EngineConnection] = []

    async def fetch(self, route: str, body: bytes = b"") -> bytes:
        """The whole answer; `EngineError` if it is none."""
        answer = await self.look(route, body)
        if answer.status != 200:
            raise refusal(answer.status, answer.body)
        return answer.body

    async def look(self, route: str, body: bytes = b"") -> HttpAnswer:
        """The answer and its status; `EngineLost` if there is none."""
        connection = await self._ask(route, body)
        try:
            answer = await connection.read_rest()
            return HttpAnswer(connection.status, answer)
        finally:
            self._put_back(connection)

    async def events(
        self, route: str, body: bytes, *, is_last: Callable[[Json], bool]
    ) -> AsyncGenerator[list[Json], None]:
        """The server-sent events of an answer, those that came together as one list, until the last one.

        An error event raises `EngineError`; an answer that ends without its last event, `EngineLost`.
        """
        connection = await self._ask(route, body)
        try:
            rest, ended = b"", False
            while not ended and (data := await connection.read()):
                if connection.status != 200:
                    raise refusal(connection.status, data + await connection.read_rest())
                *raw, rest = (rest + data).split(b"\n\n")
                # After "data: "; other lines are comments that keep the connection open.
                found = [wire.loads(event[6:]) for event in raw if event[:6] == b"data: " and event[6:] != b"[DONE]"]
                error = next((event["error"] for event in found if "error" in event), None)
                ended = error is None and any(map(is_last, found))
                if ended:
                    # Read to the end before the caller sees the last event and drops the iterator: a connection that
                    # was read to its end is used again, any other is closed.
                    await connection.read_rest()
                if told := [event for event in found if "error" not in event]:
                    yield told
                if error is not None:
                    raise EngineError(str(error["message"]))
            if not ended:
                raise EngineLost("the engine ended the stream without a finish reason")
        finally:
            self._put_back(connection)

    def close(self) -> None:
        """Closes the connections that nobody uses; the others are closed by who uses them."""
        while self._idle:
            self._idle.pop().close()

    async def _ask(self, route: str, body: bytes) -> EngineConnection:
        """A connection on which the request is under way."""
        if len(body) > MAX_BODY_BYTES:
            message = f"the request has {len(body)} bytes; at most {MAX_BODY_BYTES} are sent: ask in smaller parts"
            raise EngineRefused(message, status=413, code="request_too_large")
        connection, oldest = None, time.monotonic() - self._max_idle_s
        while self._idle and connection is None:
            kept = self._idle.pop()
            if kept.is_open and kept.used_at >= oldest:
                connection = kept
            else:
                kept.close()
        if connection is None:
            try:
                connection = await self._connect()
            except OSError as error:
                raise EngineLost(f"the engine does not answer: {type(error).__name__}") from error
        method, path = route.split(" ")
        sizes = f"content-length: {len(body)}\r\n" + ("content-type: application/json\r\n" if body else "")
        connection.send(f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._head}{sizes}\r\n".encode() + body)
        return connection

    async def _connect(self) -> EngineConnection:
        loop = asyncio.get_running_loop()
        if isinstance(self.address, Path):
            return (await loop.create_unix_connection(EngineConnection, str(self.address)))[1]
        url = urlsplit(self.address)
        is_secure = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if is_secure else 80)
        return (await loop.create_connection(EngineConnection, host, port, ssl=is_secure or None))[1]

    def _put_back(self, connection: EngineConnection) -> None:
        if connection.is_read and connection.is_open:
            connection.used_at = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()


class EngineConnection(asyncio.Protocol):
    """One kept connection: requests out, the bodies of answers in, whole or in chunks.

    What arrives between two reads is one read, so that a slow reader gets many tokens at once.
    """

    def __init__(self) -> None:
        self.status = 0
        self.is_open = True
        self.is_read = True
        """Whether the last answer was read to its end."""
        self.used_at = 0.0
        """When its last answer was read."""
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
        if not (head.startswith(b"http/1.") and head[9:12].isdigit()):
            raise EngineLost("what listens there does not speak HTTP")
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


def refusal(status: int, body: bytes) -> EngineError:
    """What an answer other than 200 means."""
    try:
        told = wire.loads(body)
        error = told["error_message"] if "error_message" in told else told["error"]  # SGLang's, about adapters
        message = error if isinstance(error, str) else str(error["message"])
    except (ValueError, TypeError, KeyError):
        return EngineError(f"the engine answered {status} with a body that is not an error object")
    code = error.get("code") if isinstance(error, dict) else None
    if status == 503:
        return EngineUnavailable(message, retry_after_s=1)
    if status >= 500:
        return EngineError(message)
    # vLLM's code is the status once more, and says nothing.
    return EngineRefused(message, status=status, code=code if isinstance(code, str) else "invalid_request")

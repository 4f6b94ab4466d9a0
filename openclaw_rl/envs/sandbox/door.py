"""The way from a box to the gateway, and to nothing else: bytes go to and fro as they come, so that answers stream.

A box's process 1 listens on its loopback before any program runs there, and hands the listening socket to us. So what
connects in the box is accepted here, although the box has no network. Beside a container it is a Unix socket.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from openclaw_rl.errors import TaskError

_CHUNK = 64 * 1024
_MAX_CONNECTIONS = 256
_CONNECT_S = 10.0


class GatewayDoor:
    """Open until it is closed; then every connection through it is cut."""

    def __init__(self, host: str, port: int, *, is_encrypted: bool) -> None:
        self._host, self._port = host, port
        self._is_encrypted = is_encrypted
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, url: str, listener: socket.socket) -> Self:
        host, port, is_encrypted = gateway_address(url)
        door = cls(host, port, is_encrypted=is_encrypted)
        listener.setblocking(False)
        start = asyncio.start_unix_server if listener.family == socket.AF_UNIX else asyncio.start_server
        door._server = await start(door._pass, sock=listener)
        return door

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(tuple(self._connections))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= _MAX_CONNECTIONS:
                await self._connect(reader, writer)
        except* OSError:
            pass  # the program in the box sees a connection that was closed, as it would without us
        finally:
            self._connections.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = ssl.create_default_context() if self._is_encrypted else None
        async with asyncio.timeout(_CONNECT_S):
            there_reader, there_writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, there_writer))
                both.create_task(_pump(there_reader, writer))
        finally:
            there_writer.close()


def gateway_address(url: str) -> tuple[str, int, bool]:
    """Host, port, and whether it is https."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise TaskError(f"a box's gateway is http://HOST:PORT, got {url!r}")
    is_encrypted = parts.scheme == "https"
    return parts.hostname, parts.port or (443 if is_encrypted else 80), is_encrypted


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side has said all, and the other knows."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        with suppress(OSError):
            writer.write_eof()

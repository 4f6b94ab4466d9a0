"""One end of a WebSocket, of either side. It is read all the time, whoever waits for a message or not.

Both ends are pinged, and who does not answer is cut off after some seconds: aiohttp answers a ping while it is read
only. So an agent may think, and a step may take, as long as they like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
import orjson
from aiohttp import web

from openclaw_rl.types import Json

MAX_UNREAD = 8
"""Messages that may wait here. Whoever sends more does not wait for answers, and is cut off."""


class SocketEnd:
    """Made inside a running loop; closed by who made it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse) -> None:
        self._socket = socket
        self._inbox: asyncio.Queue[str | None] = asyncio.Queue()
        self.reading = asyncio.create_task(self._read())
        """Ends when the other side is gone."""

    async def send(self, message: Mapping[str, Json]) -> bool:
        """False if the other side is gone."""
        try:
            await self._socket.send_str(orjson.dumps(message).decode())
        except (ConnectionError, aiohttp.ClientError):
            return False
        return True

    async def receive(self) -> str | None:
        """The next message; None when the other side is gone and has left no more."""
        message = await self._inbox.get()
        if message is None:
            self._inbox.put_nowait(None)
        return message

    async def close(self) -> None:
        self.reading.cancel()
        await asyncio.wait((self.reading,))
        await self._socket.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is not aiohttp.WSMsgType.TEXT or self._inbox.qsize() >= MAX_UNREAD:
                    break
                self._inbox.put_nowait(message.data)
        finally:
            self._inbox.put_nowait(None)

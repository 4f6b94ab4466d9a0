"""An exchange to an HTTP answer, in whatever dialect the given writer speaks.

The order is the law: sample, commit, and only then the bytes that tell the client it is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Self

from aiohttp import web

from openclaw_rl.errors import EngineUnavailable, OpenClawError, StoreError, StoreUnavailable
from openclaw_rl.faults import crash_point
from openclaw_rl.gateway.access.auth import REVOKED, Visit
from openclaw_rl.gateway.answer.exchange import Exchange
from openclaw_rl.gateway.api.dialects.spoken import StreamWriter

log = logging.getLogger("openclaw_rl.gateway")


async def serve_whole(
    request: web.Request, exchange: Exchange, write: Callable[[], Awaitable[bytes]], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Answers with one JSON object; `write` makes it when everything is known."""
    async with aclosing(exchange.pieces()) as pieces:
        async for _ in pieces:
            pass
    crash_point("gateway.engine_done")
    await exchange.commit()
    crash_point("gateway.committed_before_last_byte")
    response = web.Response(body=await write(), content_type="application/json", headers=headers)
    await response.prepare(request)
    await response.write_eof()
    crash_point("gateway.replied")
    await exchange.delivered()
    return response


async def serve_stream(
    request: web.Request,
    exchange: Exchange,
    writer: StreamWriter,
    headers: Mapping[str, str],
    *,
    visit: Visit,
    keepalive_s: float,
) -> web.StreamResponse:
    """Answers with events. Until the first of them a failure is still a plain HTTP error."""
    async with _Events(request, writer, headers, keepalive_s) as events:
        try:
            async with aclosing(exchange.pieces()) as pieces:
                async for index, piece in pieces:
                    crash_point("gateway.mid_stream" if events.opened else "gateway.first_token")
                    data = writer.piece(index, piece)
                    if data:
                        await events.send(data)
            crash_point("gateway.engine_done")
            await exchange.commit()
        except OpenClawError as error:
            if not events.opened:
                raise
            await events.send(writer.error(*spoken(error)))
            return events.response
        except asyncio.CancelledError:
            if not visit.is_over or not events.opened:
                raise
            async with asyncio.timeout(_FAREWELL_S):
                await events.send(writer.error(REVOKED, "invalid_api_key"))
            return events.response
        crash_point("gateway.committed_before_last_byte")
        await events.send(writer.end())
    await events.response.write_eof()
    crash_point("gateway.replied")
    await exchange.delivered()
    return events.response


def spoken(error: OpenClawError) -> tuple[str, str]:
    """What a client is told about a failure of ours, and its code. A store's own words name files: they are logged."""
    if isinstance(error, StoreError):
        log.error("store failed: %s", error)
        if not isinstance(error, StoreUnavailable):
            return "the turn could not be stored; the server's log has the reason", "store_failed"
        told = "the turn could not be put on disk, so nothing was acknowledged"
        remedy = "free some space there, or see that its database answers, and try again"
        return f"{told}; {remedy}", "store_unavailable"
    return str(error), "engine_unavailable" if isinstance(error, EngineUnavailable) else "engine_failed"


_FAREWELL_S = 0.5
"""How long a client whose key was revoked may take to read that; one that does not read is cut off."""


class _Events:
    """A response that is opened by its first event, or by the first silence, and kept alive through later ones."""

    def __init__(
        self, request: web.Request, writer: StreamWriter, headers: Mapping[str, str], keepalive_s: float
    ) -> None:
        self.response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        self._request = request
        self._writer = writer
        self._keepalive_s = keepalive_s
        self._lock = asyncio.Lock()
        self._quiet = True
        self._pings: asyncio.Task[None] | None = None

    @property
    def opened(self) -> bool:
        return self.response.prepared

    async def send(self, data: bytes) -> None:
        async with self._lock:
            if not self.opened:
                await self.response.prepare(self._request)
                data = self._writer.begin() + data
            await self.response.write(data)
            self._quiet = False

    async def __aenter__(self) -> Self:
        self._pings = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._pings is not None
        self._pings.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._keepalive_s)
            if self._quiet:
                await self.send(self._writer.ping)
            self._quiet = True

"""GET /ui/api/events: one open page, told of every change until it goes."""

from __future__ import annotations

import asyncio

from aiohttp import web

from openclaw_rl.dashboard.server.chat import event
from openclaw_rl.dashboard.server.feed import Feed, OpenPage
from openclaw_rl.dashboard.server.site import PAGE_HEADERS
from openclaw_rl.dashboard.server.visiting import Visits
from openclaw_rl.gateway.api.http_server import SECURITY_HEADERS

_RETRY_MS = 2000
"""How long a browser waits before it comes back to a server that went away."""


class EventRoutes:
    def __init__(self, visits: Visits, feed: Feed, *, keepalive_s: float) -> None:
        self._visits = visits
        self._feed = feed
        self._keepalive_s = keepalive_s

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/ui/api/events", self._visits.route(self._events, takes_stream=True))]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        visitor = self._visits.visitor(request)
        headers = {**SECURITY_HEADERS, **PAGE_HEADERS, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        with self._feed.open(visitor) as page:
            await response.prepare(request)
            writing = asyncio.create_task(self._write(response, page))
            closing = asyncio.create_task(self._visits.app.closing.wait())
            try:
                await asyncio.wait((writing, closing), return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    await writing
            finally:
                writing.cancel()
                closing.cancel()
        return response

    async def _write(self, response: web.StreamResponse, page: OpenPage) -> None:
        """Until the browser is gone. A silent stream says now and then that it lives, and so finds out."""
        await response.write(b"retry: %d\n\n" % _RETRY_MS)
        events = self._feed.events(page)
        told = asyncio.ensure_future(anext(events))
        try:
            while True:
                done, _ = await asyncio.wait((told,), timeout=self._keepalive_s)
                if done:
                    await response.write(event(told.result()))
                    told = asyncio.ensure_future(anext(events))
                else:
                    await response.write(b": ping\n\n")
        except ConnectionError:
            return
        finally:
            told.cancel()

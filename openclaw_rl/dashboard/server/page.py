"""The page's server side: every route below /ui/, and the loop that tells open pages what happens."""

from __future__ import annotations

from aiohttp import web

from openclaw_rl.dashboard.server.door import LINK_S, PageDoor
from openclaw_rl.dashboard.server.events import EventRoutes
from openclaw_rl.dashboard.server.feed import Feed
from openclaw_rl.dashboard.server.lessons import LessonRoutes
from openclaw_rl.dashboard.server.machine import MachineRoutes
from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.dashboard.server.people import PeopleRoutes
from openclaw_rl.dashboard.server.site import Site
from openclaw_rl.dashboard.server.talking import TalkRoutes
from openclaw_rl.dashboard.server.versions import VersionRoutes
from openclaw_rl.dashboard.server.visiting import Visits
from openclaw_rl.gateway.api.app import App

__all__ = ["LINK_S", "Page"]


class Page:
    """`feed.run` is its loop."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._site = Site()
        self.feed = Feed(parts.rows, parts.lessons, parts.live, warm=parts.tokens)
        self.door = PageDoor(parts.keys, parts.config.store.data_dir / "page.json", owner_key=parts.owner_key)

    def link(self, url: str) -> str:
        """An address that lets the owner in, once and for a while. What stands behind # is sent to no server."""
        if not self._parts.config.gateway.require_key:
            return f"{url}/ui/"
        return f"{url}/ui/#link={self.door.new_link()}"

    def routes(self, app: App) -> list[web.RouteDef]:
        parts, settings = self._parts, self._parts.config.gateway
        visits = Visits(app, self.door, require_key=settings.require_key)
        return [
            web.route("*", "/", self._front),
            web.get("/ui", self._front),
            *PeopleRoutes(visits, parts, self._site.languages).routes(),
            *TalkRoutes(visits, parts).routes(),
            *LessonRoutes(visits, parts).routes(),
            *VersionRoutes(visits, parts).routes(),
            *MachineRoutes(visits, parts).routes(),
            *EventRoutes(visits, self.feed, keepalive_s=settings.keepalive_s).routes(),
            web.get("/ui/{path:.*}", self._file),
        ]

    async def _front(self, request: web.Request) -> web.StreamResponse:
        """Browsers are led to the page; for programs there is nothing here."""
        if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
            raise web.HTTPNotFound
        return web.Response(status=302, headers={"Location": "/ui/"})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._site.answer(request)

"""Coming in and going out: links, keys, and who is signed in."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from aiohttp import web

from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.dashboard.server.visiting import Visitor, Visits, answered, cookie_name, looked
from openclaw_rl.types import BASE_VERSION, LOCAL_USER, USER_NAME
from openclaw_rl.views.page.people import Done, KeyBody, LinkBody, Me


class PeopleRoutes:
    def __init__(self, visits: Visits, parts: PageParts, languages: Sequence[str]) -> None:
        self._visits = visits
        self._parts = parts
        self._languages = tuple(languages)

    def routes(self) -> list[web.RouteDef]:
        guarded = self._visits.route
        return [
            web.post("/ui/api/link", guarded(self._link)),
            web.post("/ui/api/sign-in", guarded(self._sign_in)),
            web.post("/ui/api/sign-out", guarded(self._sign_out)),
            web.get("/ui/api/me", guarded(self._me)),
        ]

    async def _link(self, request: web.Request) -> web.StreamResponse:
        given = await self._visits.body(request, LOCAL_USER, LinkBody)
        return await self._let_in(request, self._visits.door.use_link(given.link))

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        given = await self._visits.body(request, LOCAL_USER, KeyBody)
        return await self._let_in(request, self._visits.door.sign_in(given.key))

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        self._visits.door.sign_out(request.cookies.get(cookie_name(request)))
        return self._visits.signed_out(request, answered(Done()))

    async def _me(self, request: web.Request) -> web.StreamResponse:
        return answered(await self._told(self._visits.visitor(request)))

    async def _let_in(self, request: web.Request, cookie: str) -> web.StreamResponse:
        key_id = self._visits.door.key_of(cookie)
        user = None if key_id is None else self._visits.app.enter_as(request, key_id)
        told = await self._told(Visitor(user=user or LOCAL_USER))
        return self._visits.signed_in(request, cookie, answered(told))

    async def _told(self, visitor: Visitor) -> Me:
        parts = self._parts
        users = [visitor.user]
        if visitor.is_owner:
            lines = await looked(parts.rows.lines)
            users = sorted({*users, *lines, *filter(USER_NAME.fullmatch, parts.keys.users())})
        return Me(
            user=visitor.user,
            is_owner=visitor.is_owner,
            users=tuple(users),
            model=parts.model,
            version=parts.live.present(visitor.user) or BASE_VERSION,
            languages=self._languages,
            learns=parts.learns,
            release=metadata.version("openclaw-rl"),
        )

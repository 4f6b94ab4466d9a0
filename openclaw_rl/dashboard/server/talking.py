"""Conversations: their lists and turns, what is said in them, and what is said of an answer."""

from __future__ import annotations

import time

from aiohttp import web

from openclaw_rl.dashboard.server.chat import CLIENT, PAGE
from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.dashboard.server.visiting import Visits, answered, looked, named_turn, no_such, paging
from openclaw_rl.errors import RequestError
from openclaw_rl.types import Feedback
from openclaw_rl.views.page.corrections import OpinionBody
from openclaw_rl.views.page.talking import list_conversations, read_conversation_part, read_turns
from openclaw_rl.views.page.tracing import read_corrections

_MAX_TEXT = 65_536


class TalkRoutes:
    def __init__(self, visits: Visits, parts: PageParts) -> None:
        self._visits = visits
        self._parts = parts

    def routes(self) -> list[web.RouteDef]:
        guarded = self._visits.route
        return [
            web.get("/ui/api/sessions", guarded(self._sessions)),
            web.get("/ui/api/sessions/{session}", guarded(self._session)),
            web.get("/ui/api/turns/{turn}", guarded(self._turn)),
            web.get("/ui/api/turns/{turn}/correction", guarded(self._correction)),
            web.post("/ui/api/turns/{turn}/feedback", guarded(self._feedback)),
            web.post("/ui/api/chat", guarded(self._chat, takes_stream=True)),
        ]

    async def _sessions(self, request: web.Request) -> web.StreamResponse:
        line, part = self._visits.visitor(request).lines(request), paging(request)
        return answered(await looked(lambda: list_conversations(self._parts.rows, line, part)))

    async def _session(self, request: web.Request) -> web.StreamResponse:
        visitor, name = self._visits.visitor(request), request.match_info["session"]
        part, rows = paging(request, name="before"), self._parts.rows
        session = await looked(lambda: rows.session(name))
        if session is None or not visitor.may_see(session):
            raise no_such("conversation", name)
        return answered(await looked(lambda: read_conversation_part(rows, session, part)))

    async def _turn(self, request: web.Request) -> web.StreamResponse:
        visitor, rows, name = self._visits.visitor(request), self._parts.rows, request.match_info["turn"]
        session, index = await looked(lambda: named_turn(rows, visitor, name))
        (turn,) = await looked(lambda: read_turns(rows, [(session.id, index)]))
        return answered(turn)

    async def _correction(self, request: web.Request) -> web.StreamResponse:
        visitor, rows, name = self._visits.visitor(request), self._parts.rows, request.match_info["turn"]
        session, index = await looked(lambda: named_turn(rows, visitor, name))
        return answered(await self._became(session.id, index))

    async def _feedback(self, request: web.Request) -> web.StreamResponse:
        visitor, rows, name = self._visits.visitor(request), self._parts.rows, request.match_info["turn"]
        given = await self._visits.body(request, visitor.user, OpinionBody)
        session, index = await looked(lambda: named_turn(rows, visitor, name))
        if session.user != visitor.user:
            raise RequestError("only whose conversation it is can say this", status=403, code="not_allowed")
        if given.score is None and not given.text.strip():
            raise RequestError("give a score, a text, or both", param="score")
        if len(given.text) > _MAX_TEXT or "\x00" in given.text:
            raise RequestError(f"a text has at most {_MAX_TEXT} characters, and no NUL", param="text")
        said = Feedback(
            session=session.id,
            index=index,
            user=visitor.user,
            given_at=time.time(),
            score=given.score,
            text=given.text.strip(),
        )
        await self._visits.app.put_feedback(said)
        return answered(await self._became(session.id, index))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        visitor = self._visits.visitor(request)
        return await self._visits.app.answer(request, PAGE, visitor.user, {"user-agent": CLIENT})

    async def _became(self, session: str, index: int) -> object:
        found = await looked(lambda: read_corrections(self._parts.rows, [(session, index)]))
        if (session, index) not in found:
            raise no_such("word about turn", f"{session}.{index}")
        return found[session, index]

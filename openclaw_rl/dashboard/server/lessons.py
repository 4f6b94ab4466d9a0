"""Lessons: their list, each one with its tokens, and what a person decides about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from aiohttp import web

from openclaw_rl.dashboard.server.deciding import Decisions
from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.dashboard.server.visiting import (
    Visitor,
    Visits,
    answered,
    looked,
    named_turn,
    no_such,
    own_line,
    paging,
    query_choice,
)
from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Session, line_of, turn_id, version_number
from openclaw_rl.views.page.corrections import CorrectionState
from openclaw_rl.views.page.left_out import count_left_out
from openclaw_rl.views.page.lessons import list_lessons, read_lesson, read_tokens
from openclaw_rl.views.page.teaching import HintBody, LessonFilter, UndoneText, VerdictKind
from openclaw_rl.views.page.tracing import read_corrections

Scores = Mapping[str, Mapping[str, Sequence[float]]]


class LessonRoutes:
    def __init__(self, visits: Visits, parts: PageParts) -> None:
        self._visits = visits
        self._parts = parts
        self._decisions = Decisions(parts.rows, visits.app.put_feedback)

    def routes(self) -> list[web.RouteDef]:
        guarded = self._visits.route
        return [
            web.get("/ui/api/lessons", guarded(self._list)),
            web.get("/ui/api/lessons/{turn}", guarded(self._one)),
            web.get("/ui/api/lessons/{turn}/tokens", guarded(self._tokens)),
            web.post("/ui/api/lessons/{turn}/accept", guarded(self._accept)),
            web.post("/ui/api/lessons/{turn}/reject", guarded(self._reject)),
            web.post("/ui/api/lessons/{turn}/hint", guarded(self._hint)),
            web.post("/ui/api/lessons/{turn}/undo", guarded(self._undo)),
            web.get("/ui/api/left-out", guarded(self._left_out)),
        ]

    async def _list(self, request: web.Request) -> web.StreamResponse:
        visitor, part, rows = self._visits.visitor(request), paging(request), self._parts.rows
        line, session = visitor.lines(request), request.query.get("session") or None
        wanted = LessonFilter(
            language=request.query.get("language") or None,
            verdict=query_choice(request, "verdict", get_args(VerdictKind)),
            state=query_choice(request, "state", get_args(CorrectionState)),
        )
        return answered(await looked(lambda: list_lessons(rows, line, wanted, part, session=session)))

    async def _one(self, request: web.Request) -> web.StreamResponse:
        session, index, _ = await self._named(request)
        parts = self._parts
        return answered(await looked(lambda: read_lesson(parts.rows, session, index, parts.tokens())))

    async def _tokens(self, request: web.Request) -> web.StreamResponse:
        session, index, _ = await self._named(request)
        parts = self._parts
        known = await looked(lambda: read_tokens(parts.rows, session, index, parts.tokens(), {}, ""))
        scores: Scores = {}
        why_not = "no version has learned it yet"
        if known.version is not None:
            names = [one.id for one in known.samples]
            try:
                scores = await parts.commands.moved(line_of(session), version_number(known.version), names)
                why_not = ""
            except OpenClawError as error:
                why_not = str(error)
        return answered(await looked(lambda: read_tokens(parts.rows, session, index, parts.tokens(), scores, why_not)))

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        session, index, visitor = await self._changed(request)
        await self._decisions.accept(session, index, user=visitor.user)
        return answered(await self._became(session, index))

    async def _hint(self, request: web.Request) -> web.StreamResponse:
        session, index, visitor = await self._changed(request)
        given = await self._visits.body(request, visitor.user, HintBody)
        await self._decisions.give_hint(session, index, given.hint, user=visitor.user)
        return answered(await self._became(session, index))

    async def _reject(self, request: web.Request) -> web.StreamResponse:
        session, index, _ = await self._changed(request)
        return answered(_undone(await self._parts.commands.reject(turn_id(session.id, index))))

    async def _undo(self, request: web.Request) -> web.StreamResponse:
        session, index, _ = await self._changed(request)
        return answered(_undone(await self._parts.commands.undo(turn_id(session.id, index))))

    async def _left_out(self, request: web.Request) -> web.StreamResponse:
        line, rows = self._visits.visitor(request).lines(request), self._parts.rows
        return answered(await looked(lambda: count_left_out(rows, line)))

    async def _named(self, request: web.Request) -> tuple[Session, int, Visitor]:
        visitor, rows, name = self._visits.visitor(request), self._parts.rows, request.match_info["turn"]
        session, index = await looked(lambda: named_turn(rows, visitor, name))
        return session, index, visitor

    async def _changed(self, request: web.Request) -> tuple[Session, int, Visitor]:
        """The same, of a line that the visitor may change."""
        session, index, visitor = await self._named(request)
        own_line(visitor, session)
        return session, index, visitor

    async def _became(self, session: Session, index: int) -> object:
        found = await looked(lambda: read_corrections(self._parts.rows, [(session.id, index)]))
        if (session.id, index) not in found:
            raise no_such("lesson", turn_id(session.id, index))
        return found[session.id, index]


def _undone(told: Mapping[str, object]) -> UndoneText:
    answers, answered_before = str(told["answers"]), str(told["answered"])
    if answers == answered_before:
        words = f"{answers} answers as before"
    else:
        words = f"{answers} answers from now on, instead of {answered_before}"
    undone = told["undone"]
    assert isinstance(undone, list)
    return UndoneText(words=words, answered=answered_before, answers=answers, undone=tuple(map(str, undone)))

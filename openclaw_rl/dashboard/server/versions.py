"""Versions: the list, one, two side by side, a question to two, going back, and carrying one away."""

from __future__ import annotations

import asyncio
import shutil
import tarfile
import tempfile
from pathlib import Path

from aiohttp import web

from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.dashboard.server.site import PAGE_HEADERS
from openclaw_rl.dashboard.server.visiting import Visitor, Visits, answered, looked, no_such, paging
from openclaw_rl.errors import NotFound, RequestError
from openclaw_rl.gateway.api.http_server import SECURITY_HEADERS
from openclaw_rl.release.asking import QUESTIONS
from openclaw_rl.release.folders import export_version, model_card
from openclaw_rl.types import version_label
from openclaw_rl.views.page.history import AskBody, NowAnswers, Questions, RollBackBody, TwoAnswers
from openclaw_rl.views.page.versions import compare, list_line_versions, number_of, read_trends, read_version

_MAX_QUESTION = 4000
_PART_BYTES = 1 << 16


class VersionRoutes:
    def __init__(self, visits: Visits, parts: PageParts) -> None:
        self._visits = visits
        self._parts = parts

    def routes(self) -> list[web.RouteDef]:
        guarded = self._visits.route
        return [
            web.get("/ui/api/versions", guarded(self._list)),
            web.get("/ui/api/versions/{version}", guarded(self._one)),
            web.get("/ui/api/versions/{version}/compare/{other}", guarded(self._compare)),
            web.post("/ui/api/versions/{version}/rollback", guarded(self._roll_back)),
            web.get("/ui/api/versions/{version}/export", guarded(self._export, takes_stream=True)),
            web.get("/ui/api/questions", guarded(self._questions)),
            web.post("/ui/api/ask", guarded(self._ask)),
            web.get("/ui/api/trends", guarded(self._trends)),
        ]

    async def _list(self, request: web.Request) -> web.StreamResponse:
        line, part = self._visits.visitor(request).line(request), paging(request)
        return answered(await looked(lambda: list_line_versions(self._parts.rows, line, part)))

    async def _one(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        line, number = await self._named(self._visits.visitor(request), request, request.match_info["version"])
        return answered(await looked(lambda: read_version(parts.rows, line, number, parts.config.release)))

    async def _compare(self, request: web.Request) -> web.StreamResponse:
        visitor, named = self._visits.visitor(request), request.match_info
        line, left = await self._named(visitor, request, named["version"])
        line, right = await self._named(visitor, request, named["other"], line=line if left else None)
        if not left:
            line, _ = await self._named(visitor, request, named["other"])
        return answered(await looked(lambda: compare(self._parts.rows, line, left, right)))

    async def _roll_back(self, request: web.Request) -> web.StreamResponse:
        visitor = self._visits.visitor(request)
        given = await self._visits.body(request, visitor.user, RollBackBody)
        line, number = await self._named(visitor, request, request.match_info["version"])
        return answered(NowAnswers(version=await self._parts.roll_back(line, number, untried=given.untried)))

    async def _export(self, request: web.Request) -> web.StreamResponse:
        """A .tar with the folder that `openclaw-rl export` writes."""
        visitor, rows = self._visits.visitor(request), self._parts.rows
        line, number = await self._named(visitor, request, request.match_info["version"])
        mine = await looked(lambda: rows.versions(line, every_model=True))
        version = next((one for one in mine if one.number == number), None)
        if version is None:
            raise no_such("version to export", request.match_info["version"])
        steps = {step.number: step for step in await looked(lambda: rows.steps(line))}
        base_model = version.base_model or self._parts.config.model.name
        name, folder = f"openclaw-rl-{version.label}", Path(await looked(tempfile.mkdtemp))
        try:
            card = model_card(version, mine, steps, base_model=base_model)
            await looked(lambda: export_version(version, folder / name, base_model=base_model, card=card))
            await looked(lambda: _pack(folder / name, folder / "packed.tar"))
            return await _sent(request, folder / "packed.tar", f"{name}.tar", "application/x-tar")
        finally:
            await asyncio.shield(looked(lambda: shutil.rmtree(folder, ignore_errors=True)))

    async def _questions(self, request: web.Request) -> web.StreamResponse:
        self._visits.visitor(request)
        return answered(Questions(items=tuple(QUESTIONS)))

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        visitor = self._visits.visitor(request)
        given = await self._visits.body(request, visitor.user, AskBody)
        if not given.question.strip() or len(given.question) > _MAX_QUESTION or "\x00" in given.question:
            raise RequestError(f"a question has 1 to {_MAX_QUESTION} characters", param="question")
        line, rows = visitor.line(request), self._parts.rows
        numbers = await looked(lambda: [number_of(rows, line, label) for label in (given.left, given.right)])
        left, right = await self._parts.ask(line, numbers, given.question)
        return answered(
            TwoAnswers(
                question=given.question,
                left=left,
                right=right,
                left_version=version_label(line, numbers[0]),
                right_version=version_label(line, numbers[1]),
            )
        )

    async def _trends(self, request: web.Request) -> web.StreamResponse:
        line, parts = self._visits.visitor(request).line(request), self._parts
        return answered(await looked(lambda: read_trends(parts.rows, line, parts.config.release)))

    async def _named(
        self, visitor: Visitor, request: web.Request, label: str, *, line: str | None = None
    ) -> tuple[str, int]:
        """The line and number of a label: of the line that is asked for, else of whichever the visitor may see."""
        rows = self._parts.rows
        asked = line or visitor.line(request)
        try:
            return asked, await looked(lambda: number_of(rows, asked, label))
        except NotFound:
            if line is not None or "user" in request.query or not visitor.is_owner:
                raise
        found = [one.line for one in await looked(rows.versions) if one.label == label]
        if not found:
            raise no_such("version", label)
        return found[0], await looked(lambda: number_of(rows, found[0], label))


def _pack(folder: Path, target: Path) -> None:
    with tarfile.open(target, "w") as packed:
        packed.add(folder, arcname=folder.name)


async def _sent(request: web.Request, path: Path, name: str, kind: str) -> web.StreamResponse:
    """A file as a download."""
    headers = {
        **SECURITY_HEADERS,
        **PAGE_HEADERS,
        "Content-Type": kind,
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    response = web.StreamResponse(headers=headers)
    response.content_length = (await looked(path.stat)).st_size
    await response.prepare(request)
    with await looked(lambda: path.open("rb")) as file:
        while part := await looked(lambda: file.read(_PART_BYTES)):
            await response.write(part)
    await response.write_eof()
    return response

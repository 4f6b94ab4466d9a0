"""The machine, the settings, and what is kept of a user: looked at, carried away, forgotten."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from openclaw_rl.config import Config, LoadedConfig, explain, load_config
from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.dashboard.server.running import (
    Speed,
    running_remarks,
    tell_disk,
    tell_engines,
    tell_trainer,
    worker_memory,
)
from openclaw_rl.dashboard.server.site import PAGE_HEADERS
from openclaw_rl.dashboard.server.visiting import Visits, answered, looked, no_such, own_line
from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.http_server import SECURITY_HEADERS
from openclaw_rl.types import Json
from openclaw_rl.views.page.keeping import everything_of
from openclaw_rl.views.page.loops import read_environments, read_judge, read_remarks, read_stages, remark_of
from openclaw_rl.views.page.machine import ForgetBody, ForgottenText, Machine, SettingRow, SettingRows, YourData


class MachineRoutes:
    def __init__(self, visits: Visits, parts: PageParts) -> None:
        self._visits = visits
        self._parts = parts
        self._rate = Speed()

    def routes(self) -> list[web.RouteDef]:
        guarded = self._visits.route
        return [
            web.get("/ui/api/machine", guarded(self._machine)),
            web.get("/ui/api/settings", guarded(self._settings)),
            web.get("/ui/api/data", guarded(self._data)),
            web.get("/ui/api/data/export", guarded(self._export, takes_stream=True)),
            web.post("/ui/api/data/forget", guarded(self._forget)),
        ]

    async def _machine(self, request: web.Request) -> web.StreamResponse:
        visitor = self._visits.visitor(request)
        if visitor.is_owner:
            return answered(await looked(self._whole))
        return answered(await looked(lambda: self._of_line(visitor.user)))

    def _whole(self) -> Machine:
        """For the owner."""
        parts, now = self._parts, time.time()
        rows, config, memory = parts.rows, parts.config, worker_memory()
        judge, unscored = read_judge(rows, config, learns=parts.learns, num_spent=parts.num_spent())
        disk = tell_disk(config)
        found = [*running_remarks(parts.host, config, disk), *read_remarks(rows, config, unscored)]
        return Machine(
            at=now,
            uptime_s=now - parts.started_at,
            stages=read_stages(rows, None, config, now=now, learns=parts.learns),
            engines=tell_engines(parts.host, parts.metrics, self._rate, memory, num_running=parts.num_running()),
            trainer=tell_trainer(rows, config, memory) if parts.learns else None,
            judge=judge,
            environments=read_environments(rows),
            disk=disk,
            remarks=tuple(map(remark_of, found)),
        )

    def _of_line(self, line: str) -> Machine:
        """For everybody else: their own queue."""
        parts, now = self._parts, time.time()
        return Machine(
            at=now,
            uptime_s=now - parts.started_at,
            stages=read_stages(parts.rows, line, parts.config, now=now, learns=parts.learns),
            engines=(),
            trainer=None,
            judge=None,
            environments=(),
            disk=None,
            remarks=(),
        )

    async def _settings(self, request: web.Request) -> web.StreamResponse:
        if not self._visits.visitor(request).is_owner:
            raise RequestError("the settings are the owner's to see", status=403, code="not_allowed")
        return answered(await looked(lambda: setting_rows(self._parts.config, self._parts.loaded)))

    async def _data(self, request: web.Request) -> web.StreamResponse:
        line, parts = self._visits.visitor(request).line(request), self._parts
        kept, store = await looked(lambda: parts.rows.kept(line)), parts.config.store
        return answered(
            YourData(
                user=line,
                num_sessions=kept.num_sessions,
                num_turns=kept.num_turns,
                num_versions=kept.num_versions,
                retention_days=store.retention_days,
                retention_command="openclaw-rl up store.retention_days=30",
                redacts=store.redact,
            )
        )

    async def _export(self, request: web.Request) -> web.StreamResponse:
        """A line for each key, conversation, turn and version, as it is read: nothing of it is kept on the way."""
        line, rows = self._visits.visitor(request).line(request), self._parts.rows
        headers = {
            **SECURITY_HEADERS,
            **PAGE_HEADERS,
            "Content-Type": "application/x-ndjson",
            "Content-Disposition": f'attachment; filename="openclaw-rl-{line.replace(":", "-")}.jsonl"',
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        told = everything_of(rows, line)
        while (written := await looked(lambda: next(told, None))) is not None:
            await response.write(written)
        await response.write_eof()
        return response

    async def _forget(self, request: web.Request) -> web.StreamResponse:
        visitor, commands, rows = self._visits.visitor(request), self._parts.commands, self._parts.rows
        given = await self._visits.body(request, visitor.user, ForgetBody)
        if given.everything == (given.session is not None):
            raise RequestError("name a session, or ask for everything", param="session")
        told: Mapping[str, Json]
        if given.session is not None:
            session = await looked(lambda: rows.session(str(given.session)))
            if session is None or not visitor.may_see(session):
                raise no_such("conversation", given.session)
            own_line(visitor, session)
            _check_confirmed(given.confirm, session.id)
            told = await commands.forget(session=session.id)
        else:
            line = visitor.line(request)
            _check_confirmed(given.confirm, line)
            told = await commands.forget(user=line)
        deleted = tuple(map(str, told["deleted"]))
        count = int(told["sessions"])
        words = f"{count} conversation{'' if count == 1 else 's'} forgotten"
        words += f"; deleted with it: {', '.join(deleted)}; {told['answers']} answers" if deleted else ""
        return answered(ForgottenText(words=words, sessions=count, deleted=deleted, is_erased=bool(told["erased"])))


def setting_rows(config: Config, loaded: LoadedConfig | None) -> SettingRows:
    """Every setting with who set it, as `openclaw-rl config` shows it."""
    usual = {row.key: row.value for row in explain(load_config(env={}))}
    shown = explain(loaded or LoadedConfig(config=config, sources=dict.fromkeys(usual, "")))
    return SettingRows(
        items=tuple(
            SettingRow(
                key=row.key,
                value=row.value,
                default=usual[row.key].replace(str(Path.home()), "~"),
                origin=row.source,
                words=row.doc,
                command=f"openclaw-rl up {row.key}=…",
            )
            for row in shown
        )
    )


def _check_confirmed(said: str, name: str) -> None:
    """What is deleted is deleted for good: whoever asks has to name it."""
    if said != name:
        raise RequestError(f"to delete it for good, confirm with {name!r}", param="confirm", code="not_confirmed")

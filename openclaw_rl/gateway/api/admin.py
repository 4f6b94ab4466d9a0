"""The admin socket: how a command changes something while the control process, the only writer, is running.

A Unix socket that only its owner can open; there is no other authentication and none is needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator

from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.gateway.access.auth import KeyRing, new_key
from openclaw_rl.protocols import Store
from openclaw_rl.types import LINE_NAME, USER_NAME, Json, KeyTerms

_HEARTBEAT_S = 1.0
"""How soon it is noticed that whoever asked has gone."""


class _NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    user: str = Field(pattern=f"^{USER_NAME.pattern}$")
    label: str = Field(default="", max_length=200)
    terms: dict[str, Json] = {}


class _NewTerms(BaseModel):
    """All terms of a key: those that are not named have no value of their own."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str = Field(max_length=200)
    terms: dict[str, Json]


class PutLive(Protocol):
    """Puts a line's version live, one that never answered only if it is to be `untried`; its label."""

    async def __call__(self, line: str, number: int, *, untried: bool) -> str: ...


class _Rollback(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    line: str = Field(pattern=f"^{LINE_NAME.pattern}$")
    number: int = Field(ge=0)
    untried: bool = False


class _Examine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    line: str = Field(pattern=f"^{LINE_NAME.pattern}$")
    number: int = Field(ge=0)
    exam: dict[str, Json]


class Examine(Protocol):
    """Measures a version of a line; ValueError or TypeError says what is wrong with the exam."""

    async def __call__(
        self, line: str, number: int, exam: Mapping[str, Json], on_progress: Callable[[int, int], None]
    ) -> Json: ...


class _Order(RootModel[dict[str, Json]]):
    """What the work itself reads."""


Tell = Callable[[Mapping[str, Json]], None]


class Telling(Protocol):
    """Work that tells of itself. `OpenClawError`, `ValueError`, `TypeError` or `KeyError`: why it could not be done."""

    async def __call__(self, asked: Mapping[str, Json], tell: Tell) -> Json: ...


class _Undo(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    turn: str = Field(max_length=1000)


class _Hint(_Undo):
    hint: str = Field(max_length=10_000)


class Decides(Protocol):
    """What a person decides about a lesson; `OpenClawError` says why not."""

    async def accept_turn(self, turn: str) -> Mapping[str, Json]: ...

    async def hint_turn(self, turn: str, hint: str) -> Mapping[str, Json]: ...


class _Forget(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    session: str | None = Field(default=None, max_length=1000)
    user: str | None = Field(default=None, pattern=f"^{LINE_NAME.pattern}$")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.session is None) == (self.user is None):
            raise ValueError("name a session or a user")
        return self


class _Import(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    folder: str
    line: str = Field(pattern=f"^{LINE_NAME.pattern}$")


class _Moved(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    line: str = Field(pattern=f"^{LINE_NAME.pattern}$")
    number: int = Field(ge=1)
    samples: list[str]


class AdminCommands(Protocol):
    """What a person may do to what was learned, and ask about it; `OpenClawError` says why not."""

    async def undo(self, turn: str) -> Mapping[str, Json]: ...

    async def reject(self, turn: str) -> Mapping[str, Json]: ...

    async def forget(self, *, session: str | None = None, user: str | None = None) -> Mapping[str, Json]: ...

    async def take_in(self, folder: Path, line: str) -> Mapping[str, Json]: ...

    async def moved(self, line: str, number: int, sample_ids: Sequence[str]) -> Mapping[str, Json]: ...


Asked = TypeVar("Asked", bound=BaseModel)


def _command(
    shape: type[Asked], work: Callable[[Asked], Awaitable[Mapping[str, Json]]]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A route: what was asked, checked, done, and told."""

    async def answer(request: web.Request) -> web.Response:
        try:
            asked = shape.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        try:
            told = await work(asked)
        except OpenClawError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.Response(body=orjson.dumps(told), content_type="application/json")

    return answer


def build_admin(
    store: Store,
    keys: KeyRing,
    roll_back: PutLive | None = None,
    train: Callable[[], Awaitable[object]] | None = None,
    examine: Examine | None = None,
    telling: Mapping[str, Telling] = MappingProxyType({}),
    commands: AdminCommands | None = None,
    page_link: Callable[[], str] | None = None,
    decisions: Decides | None = None,
) -> web.Application:
    """The routes that commands use.

    `train` takes every step that there are samples for, without waiting for more; None: this server does not train.
    `telling`: by its path what takes long and tells of itself.
    """

    async def add_key(asked: _NewKey) -> Mapping[str, Json]:
        key, secret = new_key(asked.user, time.time(), label=asked.label, terms=_terms(asked.terms))
        await store.put_key(key)
        keys.add(key)
        return {"id": key.id, "key": secret}

    async def set_terms(asked: _NewTerms) -> Mapping[str, Json]:
        terms = _terms(asked.terms)
        await store.set_terms(asked.key, terms)
        keys.change(asked.key, terms)
        return {"id": asked.key}

    async def revoke_key(request: web.Request) -> web.Response:
        key_id = request.match_info["id"]
        if not keys.remove(key_id):
            return web.json_response({"error": f"there is no key {key_id!r}"}, status=404)
        await store.revoke_key(key_id, time.time())
        return web.json_response({"id": key_id})

    async def put_live(asked: _Rollback) -> Mapping[str, Json]:
        assert roll_back is not None
        return {"version": await roll_back(asked.line, asked.number, untried=asked.untried)}

    async def training(request: web.Request) -> web.Response:
        return web.json_response({"trains": train is not None})

    async def train_now(request: web.Request) -> web.Response:
        if train is None:
            return web.json_response({"error": "this server does not train"}, status=409)
        try:
            await train()
        except OpenClawError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response({})

    async def new_link(request: web.Request) -> web.Response:
        if page_link is None:
            return web.json_response({"error": "this server has no page: gateway.page is false"}, status=409)
        return web.json_response({"url": page_link()})

    app = web.Application()
    app.router.add_post("/page", new_link)
    if decisions is not None:
        app.router.add_post("/accept", _command(_Undo, lambda asked: decisions.accept_turn(asked.turn)))
        app.router.add_post("/hint", _command(_Hint, lambda asked: decisions.hint_turn(asked.turn, asked.hint)))
    if commands is not None:
        for path, handler in _routes(commands).items():
            app.router.add_post(path, handler)
    long_work = _LongWork()
    if examine is not None:
        app.router.add_post("/examine", long_work.route(_Examine, partial(_examined, examine)))
    for path, work in telling.items():
        app.router.add_post(path, long_work.route(_Order, partial(_ordered, work)))
    app.on_shutdown.append(long_work.end)
    app.router.add_get("/train", training)
    app.router.add_post("/train", train_now)
    if roll_back is not None:
        app.router.add_post("/rollback", _command(_Rollback, put_live))
    app.router.add_post("/keys", _command(_NewKey, add_key))
    app.router.add_post("/keys/terms", _command(_NewTerms, set_terms))
    app.router.add_delete("/keys/{id}", revoke_key)
    return app


def _terms(raw: dict[str, Json]) -> KeyTerms:
    try:
        return KeyTerms.from_json(raw)
    except ValueError as error:
        raise ConfigError(str(error)) from None


class _LongWork:
    """Work that takes long and tells of itself meanwhile. Each piece ends with its reader, and all with the server."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Json]] = set()

    def route(
        self, shape: type[Asked], work: Callable[[Asked, Tell], Awaitable[Json]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Lines of JSON: what the work tells, an empty object now and then, and at the end the result or why there is
        none."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                asked = shape.model_validate_json(await request.read())
            except ValidationError as error:
                return web.json_response({"error": str(error)}, status=400)
            response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
            await response.prepare(request)
            lines = asyncio.Queue[Mapping[str, Json]]()
            task = asyncio.ensure_future(work(asked, lines.put_nowait))
            self._running.add(task)
            task.add_done_callback(lambda _: lines.put_nowait({}))
            try:
                while not task.done() or not lines.empty():
                    line: Mapping[str, Json] = {}
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_HEARTBEAT_S):
                            line = await lines.get()
                    await response.write(orjson.dumps(line) + b"\n")
                await response.write(orjson.dumps(await _outcome(task)) + b"\n")
            except ConnectionResetError:
                pass  # nobody waits for it any more
            finally:
                task.cancel()
                self._running.discard(task)
            return response

        return answer

    async def end(self, _: web.Application) -> None:
        for task in self._running:
            task.cancel()


async def _examined(examine: Examine, asked: _Examine, tell: Tell) -> Json:
    return await examine(asked.line, asked.number, asked.exam, lambda done, total: tell({"done": done, "total": total}))


async def _ordered(work: Telling, asked: _Order, tell: Tell) -> Json:
    return await work(asked.root, tell)


def _routes(commands: AdminCommands) -> dict[str, Callable[[web.Request], Awaitable[web.Response]]]:
    return {
        "/undo": _command(_Undo, lambda asked: commands.undo(asked.turn)),
        "/reject": _command(_Undo, lambda asked: commands.reject(asked.turn)),
        "/forget": _command(_Forget, lambda asked: commands.forget(session=asked.session, user=asked.user)),
        "/import": _command(_Import, lambda asked: commands.take_in(Path(asked.folder), asked.line)),
        "/moved": _command(_Moved, lambda asked: commands.moved(asked.line, asked.number, asked.samples)),
    }


async def _outcome(task: asyncio.Task[Json]) -> dict[str, Json]:
    try:
        return {"result": await task}
    except asyncio.CancelledError:
        return {"error": "the server stops"}
    except (OpenClawError, ValueError, TypeError, KeyError) as error:
        return {"error": str(error)}

"""An environment of ours as an OpenEnv server: a room for each WebSocket on `/ws`, and its tasks over HTTP.

    GET  /health /metadata /schema /state /list_environments /NAME/splits
    POST /NAME/tasks /NAME/num_tasks /NAME/task /NAME/task_range

A room is closed with its connection, also in the middle of a step. Loopback, unless there is a key; web pages are
refused, since a browser would let any of them talk to a server on this machine.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.envs.tasks.openenv.attempt import Catalogue, Refused, RemoteAttempt
from openclaw_rl.envs.tasks.openenv.shapes import CallObservation, CallToolAction, ErrorCode, StateData
from openclaw_rl.envs.tasks.openenv.wire import SocketEnd
from openclaw_rl.errors import ConfigError
from openclaw_rl.protocols import Environment
from openclaw_rl.types import Json, Split, Task

MAX_MESSAGE_BYTES = 4 * 2**20
_PING_S = 20.0
_SPLIT_TYPES: dict[Split, str] = {"train": "train", "held_out": "test"}


class _OfSplit(BaseModel):
    model_config = ConfigDict(extra="forbid")

    split: str


class _OneTask(_OfSplit):
    index: int = Field(ge=0)


class _SomeTasks(_OfSplit):
    start: int | None = None
    stop: int | None = None


_Asked = TypeVar("_Asked", bound=_OfSplit)


@asynccontextmanager
async def serve_openenv(
    environment: Environment,
    *,
    source: str = "",
    gateway: str = "",
    max_rooms: int = 16,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    idle_s: float = 3600.0,
) -> AsyncIterator[str]:
    """Serves the tasks of a source while the context lasts; gives the base URL. `idle_s`: longest silence of a client.

    `key`: what clients send as `Authorization: Bearer …`.
    """
    if key is None and not _is_loopback(host):
        raise ConfigError(f"without a key an environment is served on this machine alone, not on {host}; set a key")
    tasks = await environment.tasks(source)
    splits: dict[str, tuple[Task, ...]] = {
        split: tuple(task for task in tasks if task.split == split) for split in _SPLIT_TYPES
    }
    server = _OpenEnvServer(
        environment, Catalogue(splits=splits), gateway=gateway, max_rooms=max_rooms, key=key, idle_s=idle_s
    )
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        await server.end_all()
        await runner.cleanup()


class _OpenEnvServer:
    def __init__(
        self,
        environment: Environment,
        catalogue: Catalogue,
        *,
        gateway: str,
        max_rooms: int,
        key: str | None,
        idle_s: float,
    ) -> None:
        self._environment = environment
        self._catalogue = catalogue
        self._gateway = gateway
        self._max_rooms = max_rooms
        self._key = key
        self._idle_s = idle_s
        self._talks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_guard(self._key)])
        name = self._environment.name
        told: dict[str, Json] = {
            "/health": {"status": "healthy"},
            "/metadata": {"name": name, "description": f"The environment {name} of OpenClaw-RL.", "version": "1"},
            "/schema": {
                "action": CallToolAction.model_json_schema(),
                "observation": CallObservation.model_json_schema(),
                "state": StateData.model_json_schema(),
            },
            # Over HTTP there is no episode: an instance that has begun none, as OpenEnv's own servers say.
            "/state": StateData().model_dump(),
            "/list_environments": [name],
            f"/{name}/splits": [{"name": split, "type": kind} for split, kind in _SPLIT_TYPES.items()],
        }
        for path, body in told.items():
            app.router.add_get(path, _always(body))
        app.router.add_post(f"/{name}/tasks", self._asked(_OfSplit, self._all_of))
        app.router.add_post(f"/{name}/num_tasks", self._asked(_OfSplit, self._count))
        app.router.add_post(f"/{name}/task", self._asked(_OneTask, self._one))
        app.router.add_post(f"/{name}/task_range", self._asked(_SomeTasks, self._some))
        app.router.add_get("/ws", self._connected)
        return app

    async def end_all(self) -> None:
        for talk in self._talks:
            talk.cancel()
        while left := self._talks | self._closing:
            await asyncio.wait(left)

    async def _connected(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=_PING_S, max_msg_size=MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        wire = SocketEnd(socket)
        try:
            if len(self._talks) >= self._max_rooms:
                busy = f"all {self._max_rooms} rooms are taken"
                counts: dict[str, Json] = {"active_sessions": len(self._talks), "max_sessions": self._max_rooms}
                await wire.send(Refused(ErrorCode.CAPACITY_REACHED, busy, **counts).answer)
                return socket
            talk = asyncio.create_task(self._talk(wire))
            self._talks.add(talk)
            talk.add_done_callback(self._talks.discard)
            try:
                await asyncio.wait((talk, wire.reading), return_when=asyncio.FIRST_COMPLETED)
            finally:
                talk.cancel()
                await asyncio.wait((talk,))
            if not talk.cancelled():
                talk.result()
        finally:
            await wire.close()
        return socket

    async def _talk(self, wire: SocketEnd) -> None:
        """Answers until the client has done, is silent for too long, or its environment fails."""
        attempt = RemoteAttempt(self._environment, self._catalogue, gateway=self._gateway)
        try:
            while (raw := await self._next(wire)) is not None:
                answer = await attempt.answer(raw)
                if answer.message is not None:
                    await wire.send(answer.message)
                if answer.is_last:
                    return
        finally:
            # Whoever cancels this may do so again: the room is closed to its end all the same.
            closing = asyncio.create_task(attempt.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    async def _next(self, wire: SocketEnd) -> str | None:
        try:
            async with asyncio.timeout(self._idle_s):
                return await wire.receive()
        except TimeoutError:
            await wire.send(Refused(ErrorCode.SESSION_ERROR, f"silent for {self._idle_s:g} s").answer)
            return None

    def _asked(
        self, shape: type[_Asked], answer: Callable[[_Asked, tuple[Task, ...]], Json]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def route(request: web.Request) -> web.Response:
            try:
                asked = shape.model_validate_json(await request.read())
                return web.json_response(answer(asked, self._catalogue.splits[asked.split]))
            except ValidationError as error:
                return _problem(422, error.errors(include_url=False, include_context=False, include_input=False))
            except KeyError:
                return _problem(400, f"there is no such split; there are {', '.join(self._catalogue.splits)}")
            except IndexError:
                return _problem(400, "Invalid task index")

        return route

    def _all_of(self, asked: _OfSplit, tasks: tuple[Task, ...]) -> Json:
        return {"tasks": [_spec(number, task) for number, task in enumerate(tasks)], "env_name": self._environment.name}

    def _count(self, asked: _OfSplit, tasks: tuple[Task, ...]) -> Json:
        return {"num_tasks": len(tasks)}

    def _one(self, asked: _OneTask, tasks: tuple[Task, ...]) -> Json:
        return {"task": _spec(asked.index, tasks[asked.index])}

    def _some(self, asked: _SomeTasks, tasks: tuple[Task, ...]) -> Json:
        wanted = range(len(tasks))[asked.start : asked.stop]
        return {"tasks": [_spec(number, tasks[number]) for number in wanted]}


def _guard(key: str | None) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            return _problem(403, "web pages are not served")
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            return _problem(401, "send the key of this server as Authorization: Bearer KEY")
        return await handler(request)

    return guard


def _always(body: Json) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def route(request: web.Request) -> web.Response:
        return web.json_response(body)

    return route


def _spec(index: int, task: Task) -> dict[str, Json]:
    return {"id": task.ref.name, "index": index, "instruction": task.instruction}


def _problem(status: int, detail: Json) -> web.Response:
    return web.json_response({"detail": detail}, status=status)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

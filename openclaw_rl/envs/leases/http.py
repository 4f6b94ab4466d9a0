"""HTTP -> calls of a `LocalEnvServer`, for whoever has the key. It does not know what a room is.

A request whose call takes longer than `HOLD_S` is answered with 202, and its call goes on; the client asks again with
the same key. So no request outlives a broken connection for long, and a client that vanished finds its answer.

| route                                                       | body                               |
|-------------------------------------------------------------|------------------------------------|
| GET /tasks?environment=NAME&source=NAME, GET /status        |                                    |
| GET /healthz (without the key)                              |                                    |
| POST /allocate                                              | task, request_id                   |
| POST /leases/LEASE/reset                                    | key, gateway, harness              |
| POST /leases/LEASE/step, exec, solve                        | key, and call; command, timeout_s, env; nothing |
| POST /leases/LEASE/heartbeat, evaluate, close               |                                    |
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import ValidationError

from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.envs.leases.wire import (
    HOLD_S,
    MAX_BODY_BYTES,
    AllocateBody,
    Answer,
    Body,
    ExecBody,
    NoBody,
    Refusal,
    ResetBody,
    SolveBody,
    Status,
    StepBody,
    refused,
)
from openclaw_rl.errors import ConfigError, OpenClawError, RequestError
from openclaw_rl.types import Grade, Observation, Opening, Ran, RoomLease, Task

_log = logging.getLogger(__name__)

_Asked = TypeVar("_Asked", bound=Body)
_Value = TypeVar("_Value")

_READ_S = 30.0
"""How long a body may take to arrive."""

_DRAIN_S = 5.0
"""How long the last answers may take to leave; what they wait for has ended by then."""


@asynccontextmanager
async def serve_envs(
    server: LocalEnvServer, *, host: str = "127.0.0.1", port: int = 0, key: str | None = None, hold_s: float = HOLD_S
) -> AsyncIterator[str]:
    """Serves until it is left, at the URL that it yields; then ends the leases, and their callers hear of it."""
    if key is None and not _is_loopback(host):
        raise ConfigError(f"{host} can be reached from other machines; give the server a key, or bind to 127.0.0.1")
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise ConfigError("the key of the environment server is not plain text that a header can carry")
    runner = web.AppRunner(
        _app(server, key, hold_s), logger=_log, access_log=None, handler_cancellation=True, shutdown_timeout=_DRAIN_S
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(f"the environment server cannot listen on {host}:{port}: {error.strerror}") from error
        address, bound, *_ = runner.addresses[0]
        yield f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
    finally:
        try:
            await server.aclose()
        finally:
            await runner.cleanup()


async def run_env_server(
    server: LocalEnvServer, *, host: str, port: int, key: str | None, on_started: Callable[[str], None]
) -> None:
    """Serves until SIGTERM or Ctrl-C, and leaves nothing. `on_started` is told the URL."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    names = (signal.SIGTERM, signal.SIGINT)
    for name in names:
        loop.add_signal_handler(name, stop.set)
    try:
        async with serve_envs(server, host=host, port=port, key=key) as url:
            on_started(url)
            await stop.wait()
    finally:
        for name in names:
            loop.remove_signal_handler(name)


def _app(server: LocalEnvServer, key: str | None, hold_s: float) -> web.Application:
    app = web.Application(middlewares=(_told, _checked(key)), client_max_size=MAX_BODY_BYTES)
    app.add_routes([*_questions(server), *_calls(server, hold_s)])
    return app


def _questions(server: LocalEnvServer) -> Sequence[web.RouteDef]:
    async def tasks(request: web.Request) -> web.Response:
        found = await server.tasks(request.query.get("environment", ""), request.query.get("source", ""))
        # In a thread: a set may have tens of thousands of tasks.
        return _json(await asyncio.to_thread(Answer[Sequence[Task]](value=found).model_dump_json))

    async def status(_: web.Request) -> web.Response:
        return _json(Answer[Status](value=dict(await server.status())).model_dump_json())

    async def healthz(_: web.Request) -> web.Response:
        return _json("{}")

    return web.get("/tasks", tasks), web.get("/status", status), web.get("/healthz", healthz)


def _calls(server: LocalEnvServer, hold_s: float) -> Sequence[web.RouteDef]:
    def call(
        path: str,
        asked: type[_Asked],
        answer: type[Answer[_Value]],
        work: Callable[[str, _Asked], Awaitable[_Value]],
    ) -> web.RouteDef:
        async def answered(request: web.Request) -> web.Response:
            body = await _read(request, asked)
            hold = asyncio.timeout(hold_s)
            try:
                async with hold:
                    value = await work(request.match_info.get("lease", ""), body)
            except TimeoutError:
                if not hold.expired():
                    raise
                return _json("{}", status=202)
            return _json(answer(value=value).model_dump_json())

        return web.post(path, answered)

    def of_lease(name: str) -> str:
        return f"/leases/{{lease}}/{name}"

    return (
        call(
            "/allocate", AllocateBody, Answer[RoomLease], lambda _, b: server.allocate(b.task, request_id=b.request_id)
        ),
        call(of_lease("heartbeat"), NoBody, Answer[RoomLease], lambda lease, _: server.heartbeat(lease)),
        call(
            of_lease("reset"),
            ResetBody,
            Answer[Opening],
            lambda lease, b: server.reset(lease, key=b.key, gateway=b.gateway, harness=b.harness),
        ),
        call(of_lease("solve"), SolveBody, Answer[None], lambda lease, b: server.solve(lease, key=b.key)),
        call(of_lease("step"), StepBody, Answer[Observation], lambda lease, b: server.step(lease, b.call, key=b.key)),
        call(
            of_lease("exec"),
            ExecBody,
            Answer[Ran],
            lambda lease, b: server.exec(lease, b.command, key=b.key, timeout_s=b.timeout_s, env=b.env),
        ),
        call(of_lease("evaluate"), NoBody, Answer[Grade], lambda lease, _: server.evaluate(lease)),
        call(of_lease("close"), NoBody, Answer[None], lambda lease, _: server.close(lease)),
    )


async def _read(request: web.Request, asked: type[_Asked]) -> _Asked:
    """The body, or a 4xx that says what is wrong with it; what was sent is not repeated."""
    try:
        async with asyncio.timeout(_READ_S):
            raw = await request.read()
    except TimeoutError:
        raise RequestError(f"the body did not arrive within {_READ_S:g} s", status=408) from None
    try:
        return asked.model_validate_json(raw or b"{}")
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        told = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'the body'}: {fault['msg']}" for fault in faults[:5])
        raise RequestError(told) from None


def _checked(key: str | None) -> Middleware:
    """Who may ask: programs that show the key, and no web page; without a key, programs of this machine."""
    digest = None if key is None else _digest(key)

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers or (digest is None and not _is_loopback(_host_of(request))):
            raise RequestError("web pages, and names of other machines, are not served here", status=403)
        if digest is not None and request.path != "/healthz":
            scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(_digest(shown.strip()), digest):
                raise RequestError("this server needs its key; send it as 'Authorization: Bearer KEY'", status=401)
        return await handler(request)

    return checked


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error in the one form that clients read."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _json(Refusal(kind="request", message=error.reason).model_dump_json(), status=error.status)
    except OpenClawError as error:
        status, headers, refusal = refused(error)
        return _json(refusal.model_dump_json(exclude_none=True), status=status, headers=headers)


def _json(text: str, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    headers = {"Cache-Control": "no-store", "Server": "openclaw-rl", **(headers or {})}
    return web.Response(text=text, status=status, content_type="application/json", headers=headers)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _host_of(request: web.Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

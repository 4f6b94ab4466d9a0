"""A request of the page -> who makes it and what they may see, or why it is refused; and answers as JSON.

Every POST must come from the page itself: its Origin is this very host, whatever other sites the API may be called
from. What belongs to somebody else is answered like what does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import orjson
from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from openclaw_rl.dashboard.server.door import SESSION_S, PageDoor
from openclaw_rl.dashboard.server.site import PAGE_HEADERS
from openclaw_rl.errors import NotFound, OpenClawError, RequestError
from openclaw_rl.gateway.api.app import App
from openclaw_rl.gateway.api.dialects.errors import openai_error
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import LINE_NAME, LOCAL_USER, Session, line_of, split_turn_id
from openclaw_rl.views.page.paging import Paging

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

EVERYBODY = "*"
_MAX_BODY_BYTES = 1 << 20
_MAX_LIMIT, _USUAL_LIMIT = 200, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who looks at the page. The owner of the machine sees every line."""

    user: str

    @property
    def is_owner(self) -> bool:
        return self.user == LOCAL_USER

    def line(self, request: web.Request) -> str:
        """The line that is asked for: the visitor's own, unless the owner names another one."""
        asked = request.query.get("user", self.user)
        if asked == self.user or (self.is_owner and LINE_NAME.fullmatch(asked)):
            return asked
        raise no_such("line", asked)

    def lines(self, request: web.Request) -> str | None:
        """The same where a list is asked for: None is everybody's."""
        return None if self.is_owner and request.query.get("user") == EVERYBODY else self.line(request)

    def may_see(self, session: Session) -> bool:
        return self.is_owner or (session.user == self.user and session.episode is None)

    def may_change(self, line: str) -> bool:
        return self.is_owner or line == self.user


class Visits:
    """Who comes in, and with which checks."""

    def __init__(self, app: App, door: PageDoor, *, require_key: bool) -> None:
        self._app = app
        self._door = door
        self._require_key = require_key

    @property
    def app(self) -> App:
        return self._app

    @property
    def door(self) -> PageDoor:
        return self._door

    def visitor(self, request: web.Request) -> Visitor:
        """A 401 for who is not signed in."""
        if not self._require_key:
            return Visitor(user=LOCAL_USER)
        key_id = self._door.key_of(request.cookies.get(cookie_name(request)))
        user = None if key_id is None else self._app.enter_as(request, key_id)
        if user is None:
            told = "not signed in; open a link of `openclaw-rl page`, or sign in with an API key"
            raise RequestError(told, status=401, code="missing_session")
        return Visitor(user=user)

    def route(self, handler: Handler, *, takes_stream: bool = False) -> Handler:
        """The handler behind the checks of the page, with its headers; errors of ours as they are told here."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                check_origin(request)
                response = await handler(request)
            except NotFound as error:
                response = refused(404, str(error), "not_found")
            except RequestError as error:
                response = refused(error.status, str(error), error.code, param=error.param)
                if error.retry_after_s is not None:
                    response.headers["Retry-After"] = str(error.retry_after_s)
            except OpenClawError as error:
                if takes_stream:
                    raise
                response = refused(409, str(error), "conflict")
            if not response.prepared:
                for name, value in PAGE_HEADERS.items():
                    response.headers.setdefault(name, value)
            return response

        return answer

    async def body(self, request: web.Request, user: str, shape: type[T]) -> T:
        """The JSON body in this shape; the first mistake in it is named."""
        async with self._app.body(request, user, _MAX_BODY_BYTES) as raw:
            return read_shape(raw, shape)

    def signed_in(self, request: web.Request, cookie: str, response: web.Response) -> web.Response:
        """The answer that gives a browser its session."""
        response.set_cookie(
            cookie_name(request),
            cookie,
            max_age=int(SESSION_S),
            path="/ui/",
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return response

    def signed_out(self, request: web.Request, response: web.Response) -> web.Response:
        response.del_cookie(cookie_name(request), path="/ui/", httponly=True, samesite="Strict")
        return response


def cookie_name(request: web.Request) -> str:
    """Browsers keep the cookies of a host whatever the port: two servers on one machine have one each."""
    port = None if request.transport is None else request.transport.get_extra_info("sockname")
    return f"openclaw-rl-{port[1] if isinstance(port, tuple) else 0}"


def check_origin(request: web.Request) -> None:
    """A 403 for what another site's page sends, and for a POST that no page of ours sends."""
    fetched_by = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    is_ours = origin is not None and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    if request.method in ("GET", "HEAD"):
        is_fine = fetched_by in ("same-origin", "none") and (origin is None or is_ours)
    else:
        is_told = is_ours if origin is not None else "sec-fetch-site" in request.headers
        is_fine = fetched_by == "same-origin" and is_told
        if is_fine and request.content_type != "application/json":
            raise RequestError("send JSON, with Content-Type: application/json", status=415)
    if not is_fine:
        raise RequestError("only the page itself may ask this", status=403, code="origin_not_allowed")


def read_shape(raw: bytes, shape: type[T]) -> T:
    """A JSON object to a dataclass of the contract."""
    assert is_dataclass(shape)
    known = {field.name: field for field in fields(shape)}
    try:
        given = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(given, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    for name in given:
        if name not in known:
            raise RequestError(f"there is no field {name[:80]!r}; there are {', '.join(known)}", param=name[:80])
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise RequestError(f"{name} is missing", param=name)
    try:
        return TypeAdapter(shape).validate_json(raw or b"{}", strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"]))
        raise RequestError(f"{param}: {first['msg']}", param=param or None) from None


def answered(shown: object, *, status: int = 200) -> web.Response:
    """One of the contract's shapes as JSON."""
    return web.Response(status=status, body=orjson.dumps(shown), content_type="application/json")


def refused(status: int, message: str, code: str | None, *, param: str | None = None) -> web.Response:
    body = openai_error(message, status=status, code=code, param=param)
    return web.Response(status=status, body=body, content_type="application/json")


def no_such(what: str, name: str) -> RequestError:
    """Also for what is somebody else's."""
    return RequestError(f"there is no {what} {name[:80]!r} here", status=404, code="not_found")


def paging(request: web.Request, *, name: str = "after") -> Paging:
    """Where a list goes on, and how much of it is asked for."""
    said = request.query.get("limit", str(_USUAL_LIMIT))
    if not (said.isdecimal() and 1 <= int(said) <= _MAX_LIMIT):
        raise RequestError(f"limit lies in [1, {_MAX_LIMIT}]", param="limit")
    return Paging(after=request.query.get(name) or None, limit=int(said))


def named_turn(rows: ReadStore, visitor: Visitor, name: str) -> tuple[Session, int]:
    """A turn of the visitor's, by its whole name."""
    try:
        session_id, index = split_turn_id(name)
    except ValueError:
        raise no_such("turn", name) from None
    session = rows.session(session_id)
    if session is None or not visitor.may_see(session) or not rows.has_turn(session_id, index):
        raise no_such("turn", name)
    return session, index


def own_line(visitor: Visitor, session: Session) -> str:
    """The line that a session teaches, if the visitor may change it."""
    line = line_of(session)
    if not visitor.may_change(line):
        raise no_such("session", session.id)
    return line


async def looked(work: Callable[[], T]) -> T:
    """What a view reads, off the event loop."""
    return await asyncio.to_thread(work)


def query_choice(request: web.Request, name: str, allowed: tuple[str, ...]) -> str | None:
    """A filter that takes one of these words."""
    said = request.query.get(name) or None
    if said is not None and said not in allowed:
        raise RequestError(f"{name} is one of {', '.join(allowed)}", param=name)
    return said

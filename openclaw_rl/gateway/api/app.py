"""The HTTP application: routes, doors, limits, and the one place where errors become answers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Self, TypeVar

import orjson
from aiohttp import web

from openclaw_rl.config import GatewayConfig
from openclaw_rl.errors import EngineError, EngineUnavailable, OpenClawError, RequestError, StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.gateway.access.auth import Doorkeeper, KeyRing, Visit, presented_key
from openclaw_rl.gateway.access.quotas import Quotas
from openclaw_rl.gateway.answer.exchange import Exchange, Gateway, Gist
from openclaw_rl.gateway.answer.pinning import versions_for
from openclaw_rl.gateway.answer.prompt import Desk, count_prompt
from openclaw_rl.gateway.api import feedback
from openclaw_rl.gateway.api.dialects.chat import CHAT
from openclaw_rl.gateway.api.dialects.errors import error_body_of
from openclaw_rl.gateway.api.dialects.messages import MESSAGES
from openclaw_rl.gateway.api.dialects.messages.request import parse_count
from openclaw_rl.gateway.api.dialects.responses import RESPONSES, ResponseName, no_response, not_kept, stored_response
from openclaw_rl.gateway.api.dialects.spoken import Continuing, Dialect, Envelope, ErrorBody, Limits, Spoken
from openclaw_rl.gateway.api.http_server import CLIENT_GONE, SECURITY_HEADERS, received, unpack
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.api.openapi import describe
from openclaw_rl.gateway.api.rollouts import read_rollouts
from openclaw_rl.gateway.api.serving import serve_stream, serve_whole, spoken
from openclaw_rl.gateway.sessions.identify import Identity, identify
from openclaw_rl.protocols import EngineGroup, EngineHost
from openclaw_rl.render.cache import owned_by
from openclaw_rl.types import LOCAL_USER, ApiKey, AtWork, Feedback, Json, Turn, line_for, split_turn_id, turn_id

log = logging.getLogger("openclaw_rl.gateway")

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_NO_TURN = turn_id("none", 0)
_VISIT = web.RequestKey("visit", Visit)
_EXTRA_BYTES, _BYTES_PER_TOKEN = 8 << 20, 64
"""What a body may have beside what the window can hold, and about the most that a token is written with."""
_MESSAGE_CHARS = 16
"""What it takes to go through a message, beside its text."""
_READS_FASTER = 4
"""So much more than of a rendering is done on the spot of reading: 64 KiB take half a millisecond, and 12 at most where
every rule of wording is tried on them."""
_JSON_PER_TOKEN = 64
"""About what a token is written down with where log-probs are wanted."""

_HTTP_ERRORS = {
    404: "there is no such route",
    405: "this route does not take that method",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """All that a request says by itself. `digest` names it as sent, so that a retry can be told."""

    spoken: Spoken
    identity: Identity
    gist: Gist
    digest: str

    @classmethod
    def of(cls, spoken: Spoken, headers: Mapping[str, str], user: str, at_work: AtWork | None, digest: str) -> Self:
        asked = spoken.request
        identity = identify(headers, spoken.body, asked.messages, asked.tools).of_attempt(at_work)
        return cls(spoken=spoken, identity=identity, gist=Gist.of(asked, identity, user), digest=digest)


class App:
    """The routes over one gateway. `host` tells whether requests can be answered now, without waiting."""

    def __init__(
        self,
        gateway: Gateway,
        config: GatewayConfig,
        *,
        model: str,
        keys: KeyRing,
        metrics: Metrics,
        host: EngineHost,
        quotas: Quotas | None = None,
    ) -> None:
        self._gateway = gateway
        self._config = config
        self._model = model
        self._keys = keys
        self._metrics = metrics
        self._host = host
        self._quotas = quotas or Quotas()
        self._started_at = int(time.time())
        self._closing = asyncio.Event()
        self._giving: Counter[str] = Counter()
        self._doorkeeper = Doorkeeper(
            host=config.host, allowed_hosts=config.allowed_hosts, allowed_origins=config.allowed_origins
        )
        self._limits = Limits(
            max_values=config.max_values,
            max_messages=config.max_messages,
            max_tools=config.max_tools,
            max_nesting=config.max_nesting,
            max_choices=config.max_choices,
            max_tokens=config.max_tokens_limit,
            default_max_tokens=config.default_max_tokens,
            default_temperature=config.default_temperature,
        )

    def build(self, more: Iterable[web.RouteDef] = ()) -> web.Application:
        """The application, with routes of somebody else's behind the same boundary."""
        app = web.Application(middlewares=[self._boundary])
        app.router.add_post("/v1/chat/completions", self._speaking(CHAT))
        app.router.add_post("/v1/responses", self._speaking(RESPONSES))
        app.router.add_get("/v1/responses/{id}", self._stored_response)
        app.router.add_post("/v1/messages", self._speaking(MESSAGES))
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_post("/v1/feedback", self._feedback)
        app.router.add_post("/v1/sessions/{name:.+}/done", self._session_done)
        app.router.add_post("/rollout", self._session_done)
        app.router.add_get("/v1/rollouts", self._rollouts)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{name:.+}", self._one_model)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/api/hello", self._healthz)  # where Claude Code looks first
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        app.router.add_get("/openapi.json", self._openapi)
        app.router.add_routes(more)
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self._closing.set()

    @web.middleware
    async def _boundary(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every request passes here, whatever its route and verb."""
        started = time.perf_counter()
        status = CLIENT_GONE
        try:
            response = await self._guarded(request, handler)
            status = response.status
            if not response.prepared:
                response.headers["X-Request-Id"] = _request_id(request)
                for name, value in SECURITY_HEADERS.items():
                    response.headers.setdefault(name, value)
            return response
        finally:
            self._record(request, status, time.perf_counter() - started)

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._doorkeeper.check(request.headers)
            self._check_headers(request)
            async with self._keys.visit() as visit:
                request[_VISIT] = visit
                return await handler(request)
        except (OpenClawError, web.HTTPException) as error:
            if request.writer.output_size > 0:
                return _cut_off(request)
            return _refusal(error, error_body_of(request.path))
        except ConnectionError:
            # The client closed its end while we wrote; the exchange has kept what there was.
            return web.Response(status=CLIENT_GONE)
        except Exception:
            # The boundary of the process towards strangers: whatever went wrong, they get JSON and no traceback.
            log.exception("unexpected error", extra={"route": _route(request)})
            body = error_body_of(request.path)
            return _json(500, body("something went wrong; the server's log has the reason", status=500))

    def _record(self, request: web.Request, status: int, seconds: float) -> None:
        route = _route(request)
        self._metrics.requests.labels(route, status).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        facts = {"method": request.method, "route": route, "status": status, "seconds": round(seconds, 4)}
        log.info("request", extra=facts)

    def _speaking(self, dialect: Dialect) -> Handler:
        """The route that answers in this dialect."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return await self.answer(request, dialect, self._user(request), request.headers)

        return answer

    async def answer(
        self, request: web.Request, dialect: Dialect, user: str, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """What `user` asks in this dialect, with an answer; `headers` say who calls, and what for."""
        if (key := self._limited_key(request)) is not None:
            self._quotas.admit(key)
        # The body is given back once the prompt is rendered, however long the answer takes.
        async with self.body(request, user, self._max_body_bytes()) as raw:
            read = await self._understood(request, raw, dialect, user, headers)
            crash_point("gateway.accepted")
            try:
                exchange = await self._gateway.begin(
                    read.spoken.request,
                    read.identity,
                    user=user,
                    digest=read.digest,
                    dialect=dialect.name,
                    gist=read.gist,
                )
            except RequestError as error:
                return self._refused(read.spoken, error)
        del raw  # or it would live for as long as the answer takes
        try:
            return await self._serve(request, read.spoken, exchange, user)
        except RequestError as error:
            return self._refused(read.spoken, error)
        finally:
            if key is not None:
                self._quotas.spend(key, exchange.num_computed_tokens)

    def _limited_key(self, request: web.Request) -> ApiKey | None:
        """The key that it came in with, unless that is an attempt's: those are ours."""
        visit = request[_VISIT]
        return visit.key if visit.at_work is None else None

    async def _understood(
        self, request: web.Request, raw: bytes, dialect: Dialect, user: str, headers: Mapping[str, str]
    ) -> _Read:
        """All that a request says, with what it goes on from."""
        size, at_work = len(raw) // _READS_FASTER, request[_VISIT].at_work
        read = await self._shares(user, size, lambda: self._read(raw, dialect, user, headers, at_work))
        spoken = read.spoken
        if isinstance(spoken, Continuing) and spoken.follows is not None:
            return await self._continued(user, spoken, spoken.follows, read, headers, at_work)
        return read

    def _read(
        self, raw: bytes, dialect: Dialect, user: str, headers: Mapping[str, str], at_work: AtWork | None
    ) -> _Read:
        """All that a body says by itself; the work of a moment for a short one, and for a thread otherwise."""
        spoken = dialect.parse(raw, self._limits, self._model)
        if spoken.request.sampling.top_logprobs > (most := self._host.capabilities.top_k):
            raise RequestError(f"top_logprobs must be at most {most} on this engine", param="top_logprobs")
        key = headers.get("idempotency-key", "").encode("utf-8", "surrogateescape")
        digest = blake2b(raw, digest_size=16, key=blake2b(key).digest()).hexdigest()
        return _Read.of(spoken, headers, user, at_work, digest)

    async def _continued(
        self,
        user: str,
        spoken: Continuing,
        follows: str,
        read: _Read,
        headers: Mapping[str, str],
        at_work: AtWork | None,
    ) -> _Read:
        """The same with everything before it, which only the store knows."""
        before = await self._turn(user, follows, "previous_response_id")
        whole = spoken.after(before)
        num_chars = sum(_MESSAGE_CHARS + len(message.content) for message in whole.request.messages)
        read = await self._shares(user, num_chars, lambda: _Read.of(whole, headers, user, at_work, read.digest))
        if read.identity.session_key is not None:
            return read
        # The turn says outright which session goes on, be it over or one of several that read alike.
        name = await self._session_name(user, before.session)
        return replace(read, identity=replace(read.identity, session_key=name))

    def _refused(self, spoken: Spoken, error: RequestError) -> web.StreamResponse:
        """A refusal as the dialect's clients understand it, where that is not an HTTP error."""
        said = spoken.refusal(self._envelope(spoken, _NO_TURN, ""), str(error), error.code)
        if said is None:
            raise error
        return web.Response(body=said, content_type="text/event-stream")

    async def _shares(self, user: str, size: int, work: Callable[[], T]) -> T:
        return await self._gateway.shares.run(user, size, lambda _: work())

    async def _serve(self, request: web.Request, spoken: Spoken, exchange: Exchange, user: str) -> web.StreamResponse:
        headers = {
            "X-OpenClaw-RL-Version": exchange.version,
            "X-OpenClaw-RL-Turn": ",".join(exchange.turn_ids),
            "X-Request-Id": _request_id(request),
            **SECURITY_HEADERS,
        }
        envelope = self._envelope(spoken, exchange.turn_ids[0], exchange.version)
        renderer = self._gateway.renderer
        if spoken.stream:
            writer = spoken.events(envelope, exchange, renderer)
            visit, keepalive_s = request[_VISIT], self._config.keepalive_s
            response = await serve_stream(request, exchange, writer, headers, visit=visit, keepalive_s=keepalive_s)
        else:

            async def write() -> bytes:
                size = _answer_size(exchange)
                return await self._shares(user, size, lambda: spoken.whole(envelope, exchange, renderer))

            response = await serve_whole(request, exchange, write, headers)
        self._count(exchange)
        return response

    def _envelope(self, spoken: Spoken, turn: str, version: str) -> Envelope:
        return Envelope(
            token=secrets.token_hex(12),
            turn_id=turn,
            created=int(time.time()),
            model=spoken.request.model or self._model,
            version=version,
        )

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        state = self._host.state or await self._host.wait_ready(self._config.request_timeout_s)
        desk = Desk(
            renderer=self._gateway.renderer, shares=self._gateway.shares, user=user, window=state.context_window
        )
        async with self.body(request, user, self._max_body_bytes()) as raw:
            asked = await self._shares(user, len(raw), lambda: parse_count(raw, self._limits, self._model))
            with owned_by(self._gateway.salts.of_user(user)):
                num_tokens = await count_prompt(asked, desk)
            return _json(200, orjson.dumps({"input_tokens": num_tokens}))

    async def _stored_response(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        if request.query.get("stream", "false") != "false":
            raise RequestError("a stored response is not streamed; ask for it whole", param="stream")
        name = ResponseName.parse(request.match_info["id"])
        turn = await self._turn(user, name.turn_id)
        size = _JSON_PER_TOKEN * len(turn.completion.token_ids)
        body = await self._shares(user, size, lambda: stored_response(name, turn, self._model, self._gateway.renderer))
        return _json(200, body)

    async def _turn(self, user: str, name: str, param: str | None = None) -> Turn:
        """A stored turn of this user, which a response is kept as; `param` is the field that asks for it."""
        session, index = split_turn_id(name)
        if await self._gateway.store.turn_owner(session, index) == user:
            turn = await self._gateway.store.get_turn(session, index)
            if turn is not None and not turn.retrievable:
                raise not_kept(param)
            if turn is not None:
                return turn
        raise no_response(param)

    async def _session_name(self, user: str, session: str) -> str:
        """What a client would call this session of its user."""
        outline = await self._gateway.store.find_session(user, session)
        return session if outline is None else outline.session.key or session

    async def _feedback(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        if request[_VISIT].at_work is not None:
            raise RequestError("an agent at work on a task does not rate itself", status=403, code="not_allowed")
        async with self.body(request, user, feedback.MAX_BYTES) as raw:
            given = await self._shares(user, len(raw), lambda: feedback.parse(raw, user))
        if await self._gateway.store.turn_owner(given.session, given.index) != user:
            name = turn_id(given.session, given.index)
            raise RequestError(f"there is no turn {name!r} of yours", status=404, param="turn_id", code="not_found")
        await self.put_feedback(given)
        return _json(200, orjson.dumps({"object": "feedback", "turn_id": turn_id(given.session, given.index)}))

    async def put_feedback(self, given: Feedback) -> None:
        """What a person said of a turn that is theirs; on disk when this returns."""
        await feedback.put(self._gateway.store, given, self._giving, max_feedback=self._config.max_feedback)
        self._metrics.feedback.inc()

    async def _session_done(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        async with self.body(request, user, feedback.MAX_BYTES) as raw:
            name = request.match_info.get("name") or feedback.read_name(raw)
        return _json(200, await feedback.end_named(self._gateway, user, name))

    async def _rollouts(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        store, shares = self._gateway.store, self._gateway.shares
        return _json(200, await read_rollouts(store, shares, user, request.query, self._closing))

    async def _models(self, request: web.Request) -> web.StreamResponse:
        # OpenClaw checks reachability here without its key.
        is_stranger = self._config.require_key and presented_key(request.headers) is None
        names = self._names(None if is_stranger else self._line(request))
        return _json(200, orjson.dumps({"object": "list", "data": [self._model_json(name) for name in names]}))

    async def _one_model(self, request: web.Request) -> web.StreamResponse:
        names = self._names(self._line(request))
        name = request.match_info["name"]
        if name not in names:
            raise RequestError(
                f"there is no model {name[:80]!r}; there are {', '.join(names)}",
                status=404,
                code="model_not_found",
            )
        return _json(200, orjson.dumps(self._model_json(name)))

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return _json(200, b'{"ok":true}')

    async def _openapi(self, _: web.Request) -> web.StreamResponse:
        return _json(200, orjson.dumps(describe()))

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        ready, reason = self._host.is_ready, ""
        if not ready:
            reason = self._host.last_error or "the engine is starting"
            if self._is_stranger(request):  # what an engine says of its end may name files of this machine
                reason = "the engine is starting, or starts again; ask with a key, or look into the server's log"
        elif not await self._gateway.store.can_write():
            ready = False
            reason = "the store cannot be written: free some space on its disk; the server's log says more"
        told: dict[str, Json] = {"ready": ready, "reason": reason}
        if isinstance(self._host, EngineGroup) and not self._is_stranger(request):
            told["engines"] = [asdict(one) for one in self._host.health]
        return _json(200 if ready else 503, orjson.dumps(told))

    async def _metrics_text(self, _: web.Request) -> web.StreamResponse:
        self._metrics.engine_up.set(self._host.is_ready)
        self._metrics.engine_restarts.set(self._host.num_restarts)
        if isinstance(self._host, EngineGroup):
            self._metrics.engines(self._host.health)
        self._metrics.open_sessions.set(len(self._gateway.sessions))
        return web.Response(body=self._metrics.text(), content_type="text/plain", charset="utf-8")

    def enter_as(self, request: web.Request, key_id: str) -> str | None:
        """The user of this key, with which the request then came in; None if it opens nothing any more."""
        return request[_VISIT].enter_as(key_id)

    @property
    def closing(self) -> asyncio.Event:
        """Set when the server stops: what would stay open for ever ends."""
        return self._closing

    def _is_stranger(self, request: web.Request) -> bool:
        """Whether it has no key that opens anything; for routes that let everybody in."""
        try:
            self._user(request)
        except RequestError:
            return True
        return False

    def _user(self, request: web.Request) -> str:
        if self._config.require_key or self._keys.is_at_work(request.headers):
            return request[_VISIT].enter(request.headers)
        return LOCAL_USER

    def _line(self, request: web.Request) -> str:
        """The line whose versions whoever asks may name."""
        user, at_work = self._user(request), request[_VISIT].at_work
        return line_for(user, None if at_work is None else at_work.episode)

    def _max_body_bytes(self) -> int:
        """The largest body of a conversation: one that is larger than this could not fit the window anyway."""
        state, most = self._host.state, self._config.max_body_bytes
        return most if state is None else min(most, _EXTRA_BYTES + _BYTES_PER_TOKEN * state.context_window)

    @asynccontextmanager
    async def body(self, request: web.Request, user: str, max_bytes: int) -> AsyncIterator[bytes]:
        """The body, which counts as its user's until the end of the block."""
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        with self._gateway.shares.holding(user) as held:
            try:
                async with asyncio.timeout(self._config.request_timeout_s):
                    raw = await received(request, held, max_bytes=max_bytes)
            except TimeoutError:
                if request[_VISIT].is_over:
                    raise
                raise RequestError("the body did not arrive in time", status=408, code="timeout") from None
            if encoding != "identity":
                packed = raw
                raw = await self._shares(user, max_bytes, lambda: unpack(packed, encoding, max_bytes=max_bytes))
                held.grow(len(raw))
            yield raw

    def _check_headers(self, request: web.Request) -> None:
        size = len(request.path_qs) + sum(len(name) + len(value) for name, value in request.raw_headers)
        if size > self._config.max_header_bytes:
            limit = self._config.max_header_bytes
            raise RequestError(f"headers of {size} bytes; at most {limit} are accepted", status=431)

    def _names(self, line: str | None) -> list[str]:
        """The models that requests of a line can ask for; None is somebody without a key."""
        state = self._host.state
        versions = versions_for(line, state.versions if state else ())
        return [self._model, *(f"{self._model}@{version}" for version in versions)]

    def _model_json(self, name: str) -> dict[str, Json]:
        state = self._host.state
        return {
            "id": name,
            "object": "model",
            "created": self._started_at,
            "owned_by": "openclaw-rl",
            "max_model_len": state.context_window if state else None,
        }

    def _count(self, exchange: Exchange) -> None:
        self._metrics.prompt_tokens.inc(exchange.num_prompt_tokens)
        for _, completion in exchange.answers:
            self._metrics.sampled_tokens.inc(len(completion.token_ids))
            self._metrics.turns.labels(exchange.kind, completion.finish_reason).inc()


def _refusal(error: OpenClawError | web.HTTPException, error_body: ErrorBody) -> web.Response:
    """The HTTP answer to an error."""
    match error:
        case RequestError():
            body = error_body(str(error), status=error.status, param=error.param, code=error.code)
            headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
            return _json(error.status, body, headers)
        case EngineError() | StoreError():
            message, code = spoken(error)
            retry_after_s = error.retry_after_s if isinstance(error, EngineUnavailable) else 1
            return _json(503, error_body(message, status=503, code=code), {"Retry-After": str(retry_after_s)})
        case web.HTTPException():
            message = _HTTP_ERRORS.get(error.status, error.reason or "bad request")
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return _json(error.status, error_body(message, status=error.status), headers)
        case _:
            return _json(500, error_body(str(error), status=500))


def _cut_off(request: web.Request) -> web.Response:
    """Ends an answer that had begun and that nobody may have any more."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=CLIENT_GONE)


def _answer_size(exchange: Exchange) -> int:
    """About how much is written for the answers as they stand."""
    written = 0
    for message, completion in exchange.answers:
        alternatives = sum(map(len, completion.top_logprobs or ()))
        written += len(message.content) + len(message.reasoning)
        written += _JSON_PER_TOKEN * (len(completion.token_ids) + alternatives)
    return written


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _route(request: web.Request) -> str:
    """The pattern that matched, so that names in paths do not become labels."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


def _request_id(request: web.Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if given.isascii() and given.isprintable() and 0 < len(given) <= 128 else f"req-{secrets.token_hex(8)}"

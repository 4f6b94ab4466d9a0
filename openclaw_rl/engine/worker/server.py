"""An engine in this process -> HTTP/1.1 on a Unix socket, with vLLM's token routes and our own.

    POST /inference/v1/generate          one answer, whole or as server-sent events (`wire.py` has all shapes)
    POST /inference/v1/score             log-probs of given tokens
    POST /inference/v1/hidden            hidden states of the base model
    POST /inference/v1/abort_requests    {"request_ids": [...]}: those end now, with finish_reason "abort"
    POST /v1/versions/publish            loads a version, answers when it can be used; may take minutes
    POST /v1/versions/retire             takes no more requests for a version
    POST /v1/cache/forget                nobody finds any more what some salts left in the cache
    GET  /health                         the engine's state

Written by hand because a worker stands on the standard library and torch. One task serves one connection, request
after request; when the peer goes away the task is cancelled, and with it whatever it was generating. Knows no
tokenizer, no torch and no process: `worker_process.py` runs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.http import (
    MAX_BODY_BYTES,
    STREAM_LIMIT_BYTES,
    BadRequest,
    HttpRequest,
    read_request,
    response_head,
)
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused
from openclaw_rl.protocols import Engine, HiddenReader
from openclaw_rl.types import Delta, GenerateRequest, Json, VersionSpan

_log = logging.getLogger(__name__)

_SSE_HEAD = response_head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
_SSE_DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class EngineServer:
    """Serves `engine` on `path` (mode 0600) between `start` and `close`."""

    def __init__(
        self, engine: Engine, path: Path, *, max_requests: int = 1024, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._engine = engine
        self._path = path
        self._max_requests = max_requests
        self._max_body_bytes = max_body_bytes
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._running: dict[asyncio.Timeout, str] = {}
        """What generates or scores now, with its request id. One id may stand here twice: a client that lost its
        connection and asks again is not refused because the loss has not been noticed here."""

    async def start(self) -> None:
        """Binds the socket; a stale file at its path is replaced."""
        self._path.unlink(missing_ok=True)
        # The mask makes the file 0600 from birth: a chmod afterwards would leave a moment open to other users.
        mask = os.umask(0o177)
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._new_connection, str(self._path), backlog=1024)
        finally:
            os.umask(mask)

    async def close(self) -> None:
        """Stops listening, cancels what runs and removes the socket."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _new_connection(self) -> asyncio.StreamReaderProtocol:
        return _ServedConnection(self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            keep_alive = True
            while keep_alive:
                request = await read_request(reader, writer, self._max_body_bytes)
                if request is None:
                    break
                keep_alive = request.keep_alive
                await self._answer(request, writer)
        except BadRequest as error:
            _write_error(writer, error.status, str(error), code="bad_request", close=True)
        except ConnectionError:
            pass  # the peer is gone: nobody to tell
        finally:
            writer.close()

    async def _answer(self, http: HttpRequest, writer: asyncio.StreamWriter) -> None:
        response = _Response(writer)
        try:
            await self._route(http, response)
        except EngineLost as error:
            # Nothing will come any more. A broken connection says so, and the caller may go on elsewhere.
            raise ConnectionAbortedError from error
        except EngineError as error:
            response.fail(error)
        except ConnectionError:
            raise  # of the peer, while writing
        except Exception as error:
            # The boundary of the engine: a defect in it costs this request, not the worker and the other requests.
            _log.exception("%s failed", http.path, extra={"request_id": response.request_id})
            response.fail(EngineError(f"the engine failed with {type(error).__name__}; its log has the traceback"))

    async def _route(self, http: HttpRequest, response: _Response) -> None:
        match (http.method, http.path):
            case ("POST", "/inference/v1/generate"):
                await self._generate(http.body, response)
            case ("POST", "/inference/v1/score"):
                await self._score(http.body, response)
            case ("POST", "/inference/v1/hidden"):
                await self._hidden(http.body, response)
            case ("POST", "/inference/v1/abort_requests"):
                response.write({"aborted": self._abort(http.body)})
            case ("POST", "/v1/versions/publish"):
                await self._engine.publish(wire.publication_from_json(_parse(http.body)))
                response.write(wire.state_to_json(await self._engine.state()))
            case ("POST", "/v1/versions/retire"):
                await self._engine.retire(wire.version_from_json(_parse(http.body)))
                response.write(wire.state_to_json(await self._engine.state()))
            case ("POST", "/v1/cache/forget"):
                salts = wire.salts_from_json(_parse(http.body))
                await self._engine.forget_cache(salts)
                response.write({"forgotten": len(salts)})
            case ("GET", "/health"):
                response.write(wire.state_to_json(await self._engine.state()))
            case _:
                raise EngineRefused(f"no route {http.method} {http.path}", status=404, code="not_found")

    async def _generate(self, body: bytes, response: _Response) -> None:
        request, stream = wire.request_from_json(_parse(body))
        answer = _HttpAnswer(request, response, stream=stream)
        with self._place(request.request_id, response) as scope:
            try:
                async with scope, aclosing(self._engine.generate(request)) as deltas:
                    async for delta in deltas:
                        await answer.add(delta)
            except TimeoutError:
                if not scope.expired():
                    raise
                version = answer.spans[-1].version if answer.spans else (await self._engine.state()).live_version
                await answer.add(Delta(token_ids=(), logprobs=(), version=version, finish_reason="abort"))

    async def _score(self, body: bytes, response: _Response) -> None:
        request = wire.score_request_from_json(_parse(body))
        with self._place(request.request_id, response) as scope:
            try:
                async with scope:
                    scores = await self._engine.score(request)
            except TimeoutError:
                if not scope.expired():
                    raise
                raise EngineRefused("aborted", status=409, code="aborted") from None
            entries = []
            for scored in scores:
                entries.append(wire.dumps(wire.scored_to_json(scored)))
                await asyncio.sleep(0)  # 8192 positions with top-20 take 0.2 s to write: streams go on in between
        request_id = wire.dumps(request.request_id)
        response.write_bytes(b'{"request_id":%b,"scores":[%b]}' % (request_id, b",".join(entries)))

    async def _hidden(self, body: bytes, response: _Response) -> None:
        request = wire.hidden_request_from_json(_parse(body))
        if not isinstance(self._engine, HiddenReader):
            raise EngineRefused("this engine does not give hidden states", status=404, code="not_found")
        with self._place(request.request_id, response) as scope:
            try:
                async with scope:
                    found = await self._engine.hidden(request)
            except TimeoutError:
                if not scope.expired():
                    raise
                raise EngineRefused("aborted", status=409, code="aborted") from None
        response.write({"request_id": request.request_id, "hidden": [one.values for one in found]})

    @contextmanager
    def _place(self, request_id: str, response: _Response) -> Iterator[asyncio.Timeout]:
        """A place among the running requests, for a scope that `_abort` can end; refused when all are taken."""
        if len(self._running) >= self._max_requests:
            message = f"{self._max_requests} requests are running already; try again in a second"
            raise EngineRefused(message, status=503, code="queue_full")
        response.request_id = request_id
        scope = asyncio.timeout(None)
        self._running[scope] = request_id
        try:
            yield scope
        finally:
            del self._running[scope]

    def _abort(self, body: bytes) -> int:
        raw = _parse(body)
        names = raw.get("request_ids") if isinstance(raw, dict) else None
        if not isinstance(names, list):
            raise EngineRefused('request_ids must be a list: {"request_ids": [...]}')
        found = [scope for scope, name in self._running.items() if name in names and not scope.expired()]
        for scope in found:
            scope.reschedule(0.0)  # a deadline in the past: the scope ends at its next suspension
        return len(found)


class _ServedConnection(asyncio.StreamReaderProtocol):
    """A stream whose serving task is cancelled as soon as the peer is gone, also while nothing is being written."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], asyncio.Task[None]]) -> None:
        super().__init__(asyncio.StreamReader(limit=STREAM_LIMIT_BYTES), self._started)
        self._start_serving = serve
        self._serving_task: asyncio.Task[None] | None = None

    def _started(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving_task = self._start_serving(reader, writer)

    def eof_received(self) -> bool:
        super().eof_received()
        return False  # a peer that stopped sending is gone: close the transport, which calls connection_lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._serving_task is not None:
            self._serving_task.cancel()


class _Response:
    """One HTTP answer: whole, or as events. The head waits for the first byte, so that a refusal has its status."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.request_id: str | None = None
        self._writer = writer
        self._has_events = False

    def write(self, value: Json) -> None:
        """The whole answer."""
        self.write_bytes(wire.dumps(value))

    def write_bytes(self, data: bytes) -> None:
        """The whole answer, as JSON that is already written."""
        _write_json(self._writer, 200, data)

    async def write_event(self, value: Json, *, is_last: bool) -> None:
        """The next event; returns when the peer has room for more."""
        self._add_event(value, is_last=is_last)
        await self._writer.drain()

    def fail(self, error: EngineError) -> None:
        """Ends the answer with an error: as the response, or as the last event when events were already sent."""
        status, code = (error.status, error.code) if isinstance(error, EngineRefused) else (500, None)
        if self._has_events:
            self._add_event(wire.error_to_json(str(error), kind="engine_error", code=code), is_last=True)
        else:
            _write_error(self._writer, status, str(error), code=code)

    def _add_event(self, value: Json, *, is_last: bool) -> None:
        data = wire.dumps(value)
        head, end = b"" if self._has_events else _SSE_HEAD, _SSE_DONE if is_last else b""
        self._has_events = True
        self._writer.write(b"%b%x\r\ndata: %b\n\n\r\n%b" % (head, len(data) + 8, data, end))


class _HttpAnswer:
    """Writes the deltas of one answer as they come, or as one object at their end."""

    def __init__(self, request: GenerateRequest, response: _Response, *, stream: bool) -> None:
        self.spans: list[VersionSpan] = []
        self._request = request
        self._response = response
        self._stream = stream
        self._kept: list[Delta] = []

    async def add(self, delta: Delta) -> None:
        """Writes `delta`, or keeps it until the answer is whole; returns when the peer has room for more."""
        wire.extend_spans(self.spans, delta)
        if not self._stream:
            self._kept.append(delta)
            if delta.finish_reason is not None:
                self._response.write(wire.last_chunk_to_json(self._request, wire.merge(self._kept), self.spans))
        elif delta.finish_reason is None:
            await self._response.write_event(wire.chunk_to_json(self._request.request_id, delta), is_last=False)
        else:
            await self._response.write_event(wire.last_chunk_to_json(self._request, delta, self.spans), is_last=True)


def _parse(body: bytes) -> Json:
    try:
        return wire.loads(body)
    except (ValueError, RecursionError) as error:
        raise EngineRefused(f"the body is not JSON: {error}") from error


def _write_json(writer: asyncio.StreamWriter, status: int, data: bytes, *headers: str) -> None:
    head = response_head(status, "content-type: application/json", f"content-length: {len(data)}", *headers)
    writer.write(head + data)


def _write_error(
    writer: asyncio.StreamWriter, status: int, message: str, *, code: str | None, close: bool = False
) -> None:
    kind = "engine_error" if status >= 500 else "invalid_request_error"
    headers = ["connection: close"] if close else []
    _write_json(writer, status, wire.dumps(wire.error_to_json(message, kind=kind, code=code)), *headers)

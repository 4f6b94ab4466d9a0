"""An engine in this process -> HTTP/1.1 on a Unix socket, with vLLM's token routes.

    POST /inference/v1/generate          one answer, whole or as server-sent events (`wire.py`)
    POST /inference/v1/abort_requests    {"request_ids": [...]}: those end now, with finish_reason "abort"
    GET  /health                         the engine's state

Written by hand because a worker stands on the standard library and torch. One task serves one connection, request
after request; when the peer goes away the task is cancelled, and with it whatever it was generating. Knows no
tokenizer, no torch and no process: `worker_process.py` runs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from openclaw_rl.engine import wire
from openclaw_rl.engine.http import STREAM_LIMIT_BYTES, BadRequest, HttpRequest, read_request, response_head
from openclaw_rl.errors import EngineError, EngineRefused
from openclaw_rl.protocols import Engine
from openclaw_rl.types import Delta, GenerateRequest, Json, VersionSpan

_log = logging.getLogger(__name__)

_SSE_HEAD = response_head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
_SSE_DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class EngineServer:
    """Serves `engine` on `path` (mode 0600) between `start` and `close`."""

    def __init__(
        self, engine: Engine, path: Path, *, max_requests: int = 1024, max_body_bytes: int = 32 * 1024 * 1024
    ) -> None:
        self._engine = engine
        self._path = path
        self._max_requests = max_requests
        self._max_body_bytes = max_body_bytes
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._running: dict[asyncio.Timeout, str] = {}
        """What generates now, with its request id. One id may stand here twice: a client that lost its connection
        and asks again is not refused because the loss has not been noticed here."""

    @property
    def num_connections(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

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
        return _Connection(self._connected)

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
        try:
            match (http.method, http.path):
                case ("POST", "/inference/v1/generate"):
                    await self._generate(http.body, writer)
                case ("POST", "/inference/v1/abort_requests"):
                    _write_json(writer, 200, {"aborted": self._abort(http.body)})
                case ("GET", "/health"):
                    _write_json(writer, 200, wire.state_to_json(await self._engine.state()))
                case _:
                    raise EngineRefused(f"no route {http.method} {http.path}", status=404, code="not_found")
        except EngineRefused as error:
            _write_error(writer, error.status, str(error), code=error.code)

    async def _generate(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        request, stream = wire.request_from_json(_parse(body))
        if len(self._running) >= self._max_requests:
            message = f"{self._max_requests} requests are running already; try again in a second"
            raise EngineRefused(message, status=503, code="queue_full")
        answer = _Answer(request, writer, stream=stream)
        scope = asyncio.timeout(None)
        self._running[scope] = request.request_id
        try:
            await self._stream(request, answer, scope)
        except EngineError as error:
            answer.fail(error)
        except ConnectionError:
            raise  # of the peer, while writing
        except Exception as error:
            # The boundary of the engine: a defect in it costs this request, not the worker and the other requests.
            _log.exception("generate failed", extra={"request_id": request.request_id})
            answer.fail(EngineError(f"the engine failed with {type(error).__name__}; its log has the traceback"))
        finally:
            del self._running[scope]

    async def _stream(self, request: GenerateRequest, answer: _Answer, scope: asyncio.Timeout) -> None:
        try:
            async with scope, aclosing(self._engine.generate(request)) as deltas:
                async for delta in deltas:
                    await answer.add(delta)
        except TimeoutError:
            if not scope.expired():
                raise
            version = answer.spans[-1].version if answer.spans else (await self._engine.state()).live_version
            await answer.add(Delta(token_ids=(), logprobs=(), version=version, finish_reason="abort"))

    def _abort(self, body: bytes) -> int:
        raw = _parse(body)
        names = raw.get("request_ids") if isinstance(raw, dict) else None
        if not isinstance(names, list):
            raise EngineRefused('request_ids must be a list: {"request_ids": [...]}')
        found = [scope for scope, name in self._running.items() if name in names and not scope.expired()]
        for scope in found:
            scope.reschedule(0.0)  # a deadline in the past: the scope ends at its next suspension
        return len(found)


class _Connection(asyncio.StreamReaderProtocol):
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


class _Answer:
    """Writes the deltas of one answer. The head waits for the first delta, so that a refusal still has its status."""

    def __init__(self, request: GenerateRequest, writer: asyncio.StreamWriter, *, stream: bool) -> None:
        self.spans: list[VersionSpan] = []
        self._request = request
        self._writer = writer
        self._stream = stream
        self._started = False
        self._kept: list[Delta] = []

    async def add(self, delta: Delta) -> None:
        """Writes `delta`, or keeps it until the answer is whole; returns when the peer has room for more."""
        wire.extend_spans(self.spans, delta)
        if not self._stream:
            self._kept.append(delta)
            if delta.finish_reason is not None:
                whole = wire.merge(self._kept)
                _write_json(self._writer, 200, wire.last_chunk_to_json(self._request, whole, self.spans))
            return
        if delta.finish_reason is None:
            self._write_event(wire.chunk_to_json(self._request.request_id, delta), b"")
        else:
            self._write_event(wire.last_chunk_to_json(self._request, delta, self.spans), _SSE_DONE)
        await self._writer.drain()

    def fail(self, error: EngineError) -> None:
        """Ends the answer with an error: as the response, or as the last event when tokens were already sent."""
        status, code = (error.status, error.code) if isinstance(error, EngineRefused) else (500, None)
        if self._started:
            self._write_event(wire.error_to_json(str(error), kind="engine_error", code=code), _SSE_DONE)
        else:
            _write_error(self._writer, status, str(error), code=code)

    def _write_event(self, value: Json, end: bytes) -> None:
        data = wire.dumps(value)
        head = b"" if self._started else _SSE_HEAD
        self._started = True
        self._writer.write(b"%b%x\r\ndata: %b\n\n\r\n%b" % (head, len(data) + 8, data, end))


def _parse(body: bytes) -> Json:
    try:
        return wire.loads(body)
    except (ValueError, RecursionError) as error:
        raise EngineRefused(f"the body is not JSON: {error}") from error


def _write_json(writer: asyncio.StreamWriter, status: int, value: Json, *headers: str) -> None:
    data = wire.dumps(value)
    head = response_head(status, "content-type: application/json", f"content-length: {len(data)}", *headers)
    writer.write(head + data)


def _write_error(
    writer: asyncio.StreamWriter, status: int, message: str, *, code: str | None, close: bool = False
) -> None:
    kind = "engine_error" if status >= 500 else "invalid_request_error"
    headers = ["connection: close"] if close else []
    _write_json(writer, status, wire.error_to_json(message, kind=kind, code=code), *headers)

"""aiohttp's server, with our manners where no route of ours is reached: broken HTTP, odd headers, slow senders.

What aiohttp would answer in plain text leaves as JSON, and what a stranger sent is neither echoed nor logged.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from openclaw_rl.config import GatewayConfig
from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.shares import Held
from openclaw_rl.gateway.api.dialects.errors import error_body_of, openai_error
from openclaw_rl.gateway.api.dialects.spoken import ErrorBody

log = logging.getLogger("openclaw_rl.gateway")

SECURITY_HEADERS = {"Server": "openclaw-rl", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""On every answer: nothing about our insides, no guessing of types, no copies in caches."""


CLIENT_GONE = 499
"""What logs and metrics say of a request whose client did not wait for the answer."""

_AT_ONCE_S = 0.001
"""aiohttp takes 0 for "no limit"."""


class HttpRunner(web.AppRunner):
    """Runs an application for clients that we do not trust."""

    def __init__(self, app: web.Application, config: GatewayConfig) -> None:
        super().__init__(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=max(config.drain_s, _AT_ONCE_S),
            # Also the limit for sending the first headers, whole: until then a connection counts as idle.
            keepalive_timeout=config.request_timeout_s,
            lingering_time=1.0,
            # A body that is not what its encoding says leaves aiohttp's reader waiting: `unpack` does it instead.
            auto_decompress=False,
            max_field_size=config.max_header_bytes,
            max_line_size=config.max_header_bytes,
        )

    async def drain(self, hurry: asyncio.Event) -> None:
        """Ends when running answers have, when their time is over, or, cancelling them, when `hurry` is set."""
        hurried = asyncio.create_task(hurry.wait())
        draining = asyncio.create_task(self.cleanup())
        await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
        if hurried.done() and self.server is not None:
            draining.cancel()
            await asyncio.wait((draining,))
            await self.server.shutdown(_AT_ONCE_S)
        hurried.cancel()
        await self.cleanup()

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(
            _guarded(server.request_handler),
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            loop=asyncio.get_running_loop(),
            **server._kwargs,
        )


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what could not be parsed, or to a defect outside of our own boundary. Closes the connection."""
        if status >= 500:
            log.error("unexpected error outside of a route", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        if isinstance(exc, LineTooLong):
            status = 431
        text = {431: "the headers are too large", 500: "something went wrong; the server's log has the reason"}
        response = _json_error(status, text.get(status, "this is not a valid HTTP request"))
        response.force_close()
        return response


def _guarded(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """`Expect` is answered by aiohttp's router before any middleware of ours: only its one real value may pass, and a
    client that is gone before it is told to go on is no defect."""

    async def guarded(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("expect", "100-continue").lower() != "100-continue":
            told = "the only Expect that is met is 100-continue"
            return _json_error(HTTPStatus.EXPECTATION_FAILED, told, error_body_of(request.path))
        try:
            return await handle(request)
        except ConnectionError:
            return web.Response(status=CLIENT_GONE)

    return guarded


async def received(request: web.Request, held: Held, *, max_bytes: int) -> bytes:
    """The body as it was sent, counted while it comes."""
    too_large = RequestError(f"the body is larger than the {max_bytes} bytes that are read here", status=413)
    if (request.content_length or 0) > max_bytes:
        raise too_large
    raw = bytearray()
    async for chunk in request.content.iter_any():
        held.grow(len(chunk))
        raw += chunk
        if len(raw) > max_bytes:
            raise too_large
    return bytes(raw)


def unpack(raw: bytes, encoding: str, *, max_bytes: int) -> bytes:
    """The body behind a Content-Encoding; a small body must not become a huge one."""
    if encoding not in ("gzip", "deflate"):
        raise RequestError("the body's encoding is not understood; send it plain or as gzip", status=415)
    unpacker = zlib.decompressobj(31 if encoding == "gzip" else 15)
    try:
        body = unpacker.decompress(raw, max_bytes + 1)
    except zlib.error:
        raise RequestError("the body is not encoded as its headers say") from None
    if len(body) > max_bytes:
        raise RequestError(f"the body is larger than the {max_bytes} bytes that are read here", status=413)
    if not unpacker.eof:
        raise RequestError("the body is cut off")
    return body


def _json_error(status: int, message: str, error_body: ErrorBody = openai_error) -> web.Response:
    body = error_body(message, status=status)
    return web.Response(status=status, body=body, content_type="application/json", headers=SECURITY_HEADERS)

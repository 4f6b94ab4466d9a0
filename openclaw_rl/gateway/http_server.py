"""aiohttp's server, with our manners where no route of ours is reached: broken HTTP, odd headers, slow senders.

What aiohttp would answer in plain text leaves as JSON, and what a stranger sent is neither echoed nor logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from openclaw_rl.config import GatewayConfig
from openclaw_rl.gateway.dialects.openai_errors import error_body

log = logging.getLogger("openclaw_rl.gateway")

SECURITY_HEADERS = {"Server": "openclaw-rl", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""On every answer: nothing about our insides, no guessing of types, no copies in caches."""


class HttpRunner(web.AppRunner):
    """Runs an application for clients that we do not trust."""

    def __init__(self, app: web.Application, config: GatewayConfig) -> None:
        super().__init__(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=config.drain_s,
            # Also the limit for sending the first headers, whole: until then a connection counts as idle.
            keepalive_timeout=config.request_timeout_s,
            lingering_time=1.0,
            max_field_size=config.max_header_bytes,
            max_line_size=config.max_header_bytes,
        )

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(
            _expecting_nothing(server.request_handler),
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


def _expecting_nothing(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """`Expect` is answered by aiohttp's router before any middleware of ours: only its one real value may pass."""

    async def guarded(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("expect", "100-continue").lower() != "100-continue":
            return _json_error(HTTPStatus.EXPECTATION_FAILED, "the only Expect that is met is 100-continue")
        return await handle(request)

    return guarded


def _json_error(status: int, message: str) -> web.Response:
    body = error_body(message, status=status)
    return web.Response(status=status, body=body, content_type="application/json", headers=SECURITY_HEADERS)

"""Servers of the Model Context Protocol at a URL: JSON and streams of events, sessions, and all that goes wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from openclaw_rl.envs.toolcall.mcp.client import McpTools
from openclaw_rl.envs.toolcall.mcp.http import HttpWire
from openclaw_rl.envs.toolcall.mcp.wire import AnswerLate, WireBroken
from openclaw_rl.errors import TaskError
from tests.fakes.mcp_server import McpServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(kw_only=True)
class Site:
    """A server on loopback, and what it was sent."""

    server: McpServer
    streams: bool = False
    breaks: bool = False
    url: str = ""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    waiting: dict[str, Any] = field(default_factory=dict)

    async def post(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(("POST", dict(request.headers)))
        message = await request.json()
        answer = self.server.respond(message)
        if answer is None:
            return web.Response(status=202)
        headers = {"Mcp-Session-Id": "s-1"} if message["method"] == "initialize" else {}
        if not self.streams:
            return web.json_response(answer, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await response.prepare(request)
        await response.write(b": a remark\r\nid: e-1\r\nretry: 10\r\ndata:\r\n\r\n")
        ping = json.dumps({"jsonrpc": "2.0", "id": "p", "method": "ping"})
        await response.write(f"data: {ping}\n\n".encode())
        if self.breaks:
            self.waiting["e-1"] = answer
        else:
            await _trickle(response, answer)
        return response

    async def get(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(("GET", dict(request.headers)))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await _trickle(response, self.waiting.pop(request.headers["Last-Event-ID"]))
        return response

    async def delete(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(("DELETE", dict(request.headers)))
        return web.Response()


async def _trickle(response: web.StreamResponse, answer: dict[str, Any]) -> None:
    """An event that is cut anywhere, and has two lines of data."""
    one, other = json.dumps(answer).split(",", 1)
    event = f"event: message\r\ndata: {one},\r\ndata: {other}\r\n\r\n".encode()
    for at in range(0, len(event), 7):
        await response.write(event[at : at + 7])


@asynccontextmanager
async def hosted(post: Handler, get: Handler | None = None, delete: Handler | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/mcp", post)
    if get is not None and delete is not None:
        app.router.add_get("/mcp", get)
        app.router.add_delete("/mcp", delete)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def used(url: str, *, timeout_s: float = 20.0, **headers: str) -> AsyncIterator[McpTools]:
    tools = McpTools(HttpWire(url, headers=headers), name="the site", timeout_s=timeout_s)
    try:
        yield tools
    finally:
        await tools.close()
        await tools.close()


@pytest.mark.parametrize(("streams", "breaks"), [(False, False), (True, False), (True, True)])
async def test_a_server_answers_with_json_or_with_events(streams: bool, breaks: bool) -> None:
    site = Site(server=McpServer("paged"), streams=streams, breaks=breaks)
    async with hosted(site.post, site.get, site.delete) as url, used(url, Authorization="Bearer k") as tools:
        await tools.open()
        assert len(tools.tools) == 12
        assert (await tools.call("echo", {"text": "hello \ud800"})).content == "hello \ud800"
        assert (await tools.call("fail", {})).is_error
    methods = [method for method, _ in site.requests]
    assert methods[-1] == "DELETE"
    assert ("GET" in methods) == breaks
    first, *later = (headers for _, headers in site.requests)
    assert "Mcp-Session-Id" not in first
    assert "MCP-Protocol-Version" not in first
    assert all(headers["Authorization"] == "Bearer k" for headers in (first, *later))
    begun = [headers for headers in later if "Last-Event-ID" not in headers][3:]
    assert all(headers["Mcp-Session-Id"] == "s-1" for headers in begun)
    pings = [message for message in site.server.told if message.get("id") == "p"]
    assert bool(pings) == streams
    assert all(ping["result"] == {} for ping in pings)


async def test_a_server_without_sessions_is_told_who_asks_each_time() -> None:
    site = Site(server=McpServer("sessionless"))
    async with hosted(site.post) as url, used(url) as tools:
        await tools.open()
        assert (await tools.call("echo", {"text": "hi"})).content == "hi"
    headers = site.requests[-1][1]
    assert headers["MCP-Protocol-Version"] == "2026-07-28"
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "echo")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, "who?", "give it the key in `headers`"),
        (404, "", "is this the URL of an MCP server"),
        (500, "{}", "answered 500"),
        (200, "<html>", "nothing that is a JSON-RPC answer"),
        (200, "[]", "nothing that is a JSON-RPC answer"),
        (200, '{"id": 99, "result": {}}', "nothing that is a JSON-RPC answer"),
        (200, "x" * (5 << 20), "more than 4194304 bytes"),
        (307, "", "redirects are not followed"),
    ],
)
async def test_a_server_that_is_none_fails_the_attempt_with_the_reason(status: int, body: str, said: str) -> None:
    async def post(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, headers={"Location": "http://127.0.0.1:9/elsewhere"})

    async with hosted(post) as url, used(url) as tools:
        with pytest.raises(WireBroken, match=said):
            await tools.open()


async def test_a_server_that_hangs_or_stops_in_the_middle_fails_the_attempt() -> None:
    released = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    async def stop(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: {\n\ndata: 7\n\n")
        return response

    async with hosted(hang) as url, used(url, timeout_s=0.3) as tools:
        with pytest.raises(AnswerLate, match=r"no answer within 0\.3 s"):
            await tools.open()
        released.set()
    async with hosted(stop) as url, used(url) as tools:
        with pytest.raises(WireBroken, match="ended the stream without an answer"):
            await tools.open()


async def test_a_session_that_the_server_ended_is_told() -> None:
    site = Site(server=McpServer())
    gone = False

    async def post(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404) if gone else await site.post(request)

    async with hosted(post) as url, used(url) as tools:
        await tools.open()
        gone = True
        with pytest.raises(WireBroken, match="it has ended the session"):
            await tools.call("echo", {})


async def test_nobody_there_is_told() -> None:
    async with used("http://127.0.0.1:9/mcp") as tools:
        with pytest.raises(WireBroken, match=r"127\.0\.0\.1:9 cannot be reached"):
            await tools.open()


@pytest.mark.parametrize("url", ["", "mcp", "file:///etc/passwd", "http://"])
def test_what_is_no_url_is_told(url: str) -> None:
    with pytest.raises(TaskError, match="not the URL of an MCP server"):
        HttpWire(url, headers={})

"""A gateway for the chat's tests: the routes it uses, with answers that a test cuts and breaks as it likes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.types import Json

KEY = "ocrl-test"
HANG = b"HANG"
"""A piece of an answer that never comes."""
DROP = b"DROP"
"""The connection breaks here."""


def event(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Json, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def text(*words: str) -> list[bytes]:
    return [chunk({"content": word}) for word in words]


def end(num_tokens: int, finish_reason: str = "stop") -> list[bytes]:
    usage = event({"choices": [], "usage": {"completion_tokens": num_tokens}})
    return [chunk({}, finish_reason), usage, b"data: [DONE]\n\n"]


@dataclass
class FakeGateway:
    """Answers each request with the next of `answers`: pieces to stream, or a status and an error."""

    answers: list[Sequence[bytes] | tuple[int, str]] = field(default_factory=list)
    waiting_for: str | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    wishes: list[str | None] = field(default_factory=list)
    feedback: list[Json] = field(default_factory=list)
    is_hanging: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeGateway]:
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/feedback", self._feedback)
        app.router.add_post("/v1/chat/completions", self._chat)
        async with TestServer(app) as server:
            self.url = str(server.make_url("")).rstrip("/")
            yield self

    async def _readyz(self, _: web.Request) -> web.Response:
        if self.waiting_for is None:
            return web.json_response({"ready": True, "reason": ""})
        return web.json_response({"ready": False, "reason": self.waiting_for}, status=503)

    async def _models(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, "that API key is not known here")
        return web.json_response({"data": [{"id": "tiny"}, {"id": "tiny@v0"}]})

    async def _feedback(self, request: web.Request) -> web.Response:
        self.feedback.append(await request.json())
        return web.json_response({})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.sessions.append(request.headers["X-Session-Id"])
        self.wishes.append(request.headers.get("X-No-Train"))
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            return _error(*answer)
        turn = f"{self.sessions[-1]}.{len(self.requests) - 1}"
        response = web.StreamResponse(headers={"X-OpenClaw-RL-Version": "v3", "X-OpenClaw-RL-Turn": turn})
        await response.prepare(request)
        for piece in answer:
            if piece == HANG:
                self.is_hanging.set()
                await asyncio.Event().wait()
            if piece == DROP:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(piece)
            await asyncio.sleep(0)
        return response


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": "a_code"}}, status=status)

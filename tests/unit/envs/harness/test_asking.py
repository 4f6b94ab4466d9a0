"""A gateway that is away, busy or strange is asked the same again, a bounded number of times; then it is an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.harness.asking import MAX_TRIES, GatewayAsker, WindowFull
from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, EnvError
from openclaw_rl.types import Door, Json, Message

HELLO = (Message(role="user", content="hello"),)
NO_PAUSE = Backoff(first_s=0.0)
ANSWER = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"total_tokens": 9}}
Answer = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def asked(answer: Answer, *, window: int = 9) -> AsyncIterator[GatewayAsker]:
    """Somebody who asks a gateway that answers so."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "max_model_len": window}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        door = Door(url=f"http://{host}:{port}", key="ocrl-k", model="m@v3")
        async with GatewayAsker(door, patience=NO_PAUSE) as asker:
            yield asker
    finally:
        await runner.cleanup()


class Failing:
    """KeyedAnswers so many requests with a status, and then properly; keeps what it was asked."""

    def __init__(self, num_failures: int, status: int, body: Json = None) -> None:
        self.left = num_failures
        self.status = status
        self.body = body
        self.seen: list[tuple[dict[str, str], Json]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append((dict(request.headers), await request.json()))
        self.left -= 1
        if self.left >= 0:
            return web.json_response(self.body, status=self.status)
        return web.json_response(ANSWER)


def refusal(code: str | None) -> Json:
    return {"error": {"message": "not so", "type": "t", "param": None, "code": code}}


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_a_busy_gateway_is_asked_the_same_again(status: int) -> None:
    gateway = Failing(MAX_TRIES - 1, status, refusal(None))
    async with asked(gateway.answer) as asker:
        assert (await asker.ask(HELLO, ())).message == Message(role="assistant", content="hi")
        await asker.ask(HELLO, ())
    *tries, other = gateway.seen
    assert len(tries) == MAX_TRIES
    assert len({headers["Idempotency-Key"] for headers, _ in tries}) == 1
    assert other[0]["Idempotency-Key"] != tries[0][0]["Idempotency-Key"]
    assert len({headers["X-Session-Id"] for headers, _ in gateway.seen}) == 1
    assert tries[0][0]["Authorization"] == "Bearer ocrl-k"
    assert tries[0][1] == {"model": "m@v3", "messages": [{"role": "user", "content": "hello"}]}


async def test_patience_ends() -> None:
    gateway = Failing(MAX_TRIES, 503, refusal(None))
    async with asked(gateway.answer) as asker:
        with pytest.raises(EnvError, match=f"{MAX_TRIES} times: it answered 503, not so"):
            await asker.ask(HELLO, ())
    assert len(gateway.seen) == MAX_TRIES


async def test_a_gateway_that_is_not_there_is_an_error() -> None:
    async with GatewayAsker(Door(url="http://127.0.0.1:9", key="k", model="m"), patience=NO_PAUSE) as asker:
        with pytest.raises(EnvError, match="cannot be reached"):
            await asker.ask(HELLO, ())


@pytest.mark.parametrize("body", [refusal("invalid_api_key"), {"detail": "no"}])
async def test_a_refusal_is_not_repeated(body: Json) -> None:
    gateway = Failing(1, 401, body)
    async with asked(gateway.answer) as asker:
        with pytest.raises(EnvError, match="with 401: (not so|without a reason)"):
            await asker.ask(HELLO, ())
    assert len(gateway.seen) == 1


async def test_a_prompt_that_is_too_long_is_told_apart() -> None:
    gateway = Failing(1, 400, refusal(CONTEXT_LENGTH_EXCEEDED))
    async with asked(gateway.answer) as asker:
        with pytest.raises(WindowFull, match="not so"):
            await asker.ask(HELLO, ())


@pytest.mark.parametrize("body", [{}, {"choices": []}, [1], {"choices": [{"message": {"tool_calls": [{}]}}]}])
async def test_an_answer_that_is_none_is_an_error(body: Json) -> None:
    async with asked(Failing(1, 200, body).answer) as asker:
        with pytest.raises(EnvError, match="no chat completion"):
            await asker.ask(HELLO, ())


@pytest.mark.parametrize(
    ("finish_reason", "total_tokens", "is_full"),
    [("length", 9, True), ("length", 8, False), ("stop", 9, False)],
)
async def test_an_answer_that_the_window_cut_is_told_apart(
    finish_reason: str, total_tokens: int, is_full: bool
) -> None:
    choice = {"message": {"content": "hi"}, "finish_reason": finish_reason}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"choices": [choice], "usage": {"total_tokens": total_tokens}})

    async with asked(answer) as asker:
        assert (await asker.ask(HELLO, ())).fills_window is is_full


async def test_reasoning_and_calls_are_kept_as_they_were_said() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a":  1}'}}]
    message = {"content": None, "reasoning_content": "hm", "tool_calls": calls}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({**ANSWER, "choices": [{"message": message, "finish_reason": "tool_calls"}]})

    async with asked(answer) as asker:
        said = (await asker.ask(HELLO, ())).message
    assert said.to_json() == {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": calls}

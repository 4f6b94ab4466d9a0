"""The server and its client over a real socket, in one process."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from openclaw_rl.engine import wire
from openclaw_rl.engine.client import SocketEngine
from openclaw_rl.engine.scripted import Reply, ScriptedEngine, ScriptedOptions
from openclaw_rl.engine.server import EngineServer
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import Delta, GenerateRequest
from tests.unit.engine.prompts import all_deltas, ask, chat, until_error, whole

SLOW = Reply(match="slow", reply="word " * 200)


class WatchedEngine(ScriptedEngine):
    """Scripted; says when an answer begins and ends, changes version after 2 tokens, fails where it is told to."""

    def __init__(self, folder: Path, *replies: Reply, **options: Any) -> None:
        super().__init__(folder, ScriptedOptions(replies=replies, **options))
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.failure: Exception | None = None
        self.fail_at = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        num_sent = 0
        try:
            self.begun.set()
            async with aclosing(super().generate(request)) as deltas:
                async for delta in deltas:
                    if self.failure is not None and num_sent >= self.fail_at:
                        raise self.failure
                    yield delta
                    num_sent += len(delta.token_ids)
        finally:
            self.ended.set()


@asynccontextmanager
async def serving(engine: ScriptedEngine, tmp_path: Path, **limits: int) -> AsyncIterator[SocketEngine]:
    server = EngineServer(engine, tmp_path / "e.sock", **limits)
    await server.start()
    client = SocketEngine(tmp_path / "e.sock")
    try:
        yield client
    finally:
        await client.close()
        await server.close()


async def exchange(tmp_path: Path, data: bytes) -> tuple[int, Any]:
    """Sends raw bytes; the status and JSON body of the answer."""
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "e.sock"))
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
    body = json.loads(await reader.readexactly(length))
    writer.close()
    return int(head.split(" ")[1]), body


def post(path: str, value: Any) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


async def test_the_answer_over_the_socket_is_the_answer(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder, versions=("v0", "v1"))
    async with serving(engine, tmp_path) as client:
        for number, version in enumerate((None, "v0")):
            request = ask(chat(tokenizer, "hello"), f"r{number}", version, top_logprobs=2, seed=3)
            assert await whole(client, request) == await whole(engine, request)
        assert await client.state() == await engine.state()


async def test_a_whole_answer_has_ids_spans_and_usage(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder)
    request = ask(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path):
        status, body = await exchange(
            tmp_path, post("/inference/v1/generate", wire.request_to_json(request, stream=False))
        )
    assert status == 200
    expected = await whole(engine, request)
    assert wire.delta_from_json(body) == expected
    num_tokens = len(expected.token_ids)
    assert body["choices"][0]["weight_versions"] == [{"version": "v0", "start": 0, "end": num_tokens}]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (len(request.token_ids), num_tokens)


async def test_a_stream_is_server_sent_events(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder)
    request = ask(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "e.sock"))
        writer.write(post("/inference/v1/generate", wire.request_to_json(request)))
        head = await reader.readuntil(b"\r\n\r\n")
        chunks = []
        while size := int(await reader.readline(), 16):
            chunks.append(await reader.readexactly(size))
            assert await reader.readexactly(2) == b"\r\n"
        writer.close()
    assert b"text/event-stream" in head
    events = b"".join(chunks).decode().removesuffix("\n\n").split("\n\n")
    assert events.pop() == "data: [DONE]"
    raws = [json.loads(event.removeprefix("data: ")) for event in events]
    assert len(raws) > 2
    assert ["usage" in raw for raw in raws] == [False] * (len(raws) - 1) + [True]
    assert wire.merge([wire.delta_from_json(raw) for raw in raws]) == await whole(engine, request)


async def test_connections_are_used_again(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = EngineServer(WatchedEngine(tokenizer_folder), tmp_path / "e.sock")
    await server.start()
    client = SocketEngine(tmp_path / "e.sock")
    for number in range(5):
        # Leaving right after the last delta, as a caller that looks for the finish reason does.
        async with aclosing(client.generate(ask(chat(tokenizer, "hello"), f"r{number}"))) as deltas:
            async for delta in deltas:
                if delta.finish_reason is not None:
                    break
        assert server.num_connections == 1
    await client.close()
    await server.close()


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (post("/inference/v1/generate", b"{nope"), 400, "invalid_request"),
        (post("/inference/v1/generate", []), 400, "invalid_request"),
        (post("/inference/v1/generate", b"\xff\xff"), 400, "invalid_request"),
        (post("/inference/v1/generate", wire.request_to_json(ask([1], version="v9"))), 404, "version_not_found"),
        (post("/inference/v1/generate", wire.request_to_json(ask([1] * 50))), 400, "context_length_exceeded"),
        (post("/inference/v1/abort_requests", {"request_ids": 3}), 400, "invalid_request"),
        (post("/elsewhere", {}), 404, "not_found"),
        (b"GET /inference/v1/generate HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"nonsense\r\n\r\n", 400, "bad_request"),
        (post("/health", b"x" * 2001), 413, "bad_request"),
    ],
)
async def test_a_wrong_request_gets_its_status(
    tokenizer_folder: Path, tmp_path: Path, data: bytes, status: int, code: str
) -> None:
    engine = WatchedEngine(tokenizer_folder, context_window=50)
    async with serving(engine, tmp_path, max_body_bytes=2000) as client:
        got, body = await exchange(tmp_path, data)
        assert (got, body["error"]["code"]) == (status, code)
        assert await client.state() == await engine.state()


async def test_a_refusal_reaches_the_caller_as_one(tokenizer_folder: Path, tmp_path: Path) -> None:
    async with serving(WatchedEngine(tokenizer_folder, context_window=5), tmp_path) as client:
        _, error = await until_error(client, ask([1] * 5))
        assert isinstance(error, EngineRefused)
        assert (error.status, error.code) == (400, "context_length_exceeded")
        assert "5 tokens" in str(error)


async def test_too_many_requests_are_turned_away(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, SLOW, tokens_per_s=100.0)
    async with serving(engine, tmp_path, max_requests=1) as client:
        async with aclosing(client.generate(ask(chat(tokenizer, "slow"), "first"))) as first:
            await anext(first)
            _, error = await until_error(client, ask(chat(tokenizer, "hello"), "second"))
            assert isinstance(error, EngineUnavailable)
        await engine.ended.wait()


async def test_only_the_owner_may_connect(tokenizer_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    path.write_text("stale")
    async with serving(WatchedEngine(tokenizer_folder), tmp_path) as client:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await client.state()
    assert not path.exists()


async def test_closing_the_iterator_cancels(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, SLOW, tokens_per_s=100.0)
    async with serving(engine, tmp_path) as client:
        async with aclosing(client.generate(ask(chat(tokenizer, "slow")))) as deltas:
            await anext(deltas)
        await engine.ended.wait()


async def test_a_peer_that_leaves_before_the_first_token_cancels(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder, first_token_delay_s=3600.0)
    async with serving(engine, tmp_path) as client:
        task = asyncio.ensure_future(all_deltas(client, ask(chat(tokenizer, "hello"))))
        await engine.begun.wait()
        task.cancel()
        await engine.ended.wait()


async def test_abort_ends_the_named_request(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, SLOW, first_token_delay_s=3600.0, versions=("v5",))
    async with serving(engine, tmp_path) as client:
        task = asyncio.ensure_future(all_deltas(client, ask(chat(tokenizer, "slow"), "this")))
        await engine.begun.wait()
        abort = post("/inference/v1/abort_requests", {"request_ids": ["this", "other", 3]})
        assert await exchange(tmp_path, abort) == (200, {"aborted": 1})
        assert await task == [Delta(token_ids=(), logprobs=(), version="v5", finish_reason="abort")]
        assert await exchange(tmp_path, abort) == (200, {"aborted": 0})


@pytest.mark.parametrize(
    ("failure", "message"),
    [(EngineError("out of memory"), "out of memory"), (ZeroDivisionError(), "ZeroDivisionError")],
)
@pytest.mark.parametrize("fail_at", [0, 3])
async def test_a_failure_costs_one_request(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, failure: Exception, message: str, fail_at: int
) -> None:
    engine = WatchedEngine(tokenizer_folder)
    engine.failure, engine.fail_at = failure, fail_at
    request = ask(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path) as client:
        got, error = await until_error(client, request)
        engine.failure = None
        answer = await whole(client, request)
    assert error is not None
    assert message in str(error)
    assert not isinstance(error, EngineLost), "the worker lives: nothing is to be resumed"
    assert bool(got) == bool(fail_at)
    assert got == list(answer.token_ids[: len(got)])

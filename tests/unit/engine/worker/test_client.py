"""The client against peers that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.errors import EngineError, EngineLost
from openclaw_rl.types import Delta, Publication, ScoreRequest
from tests.factories.weights import folder_ref
from tests.unit.engine.prompts import all_deltas, ask, until_error

CALLS: tuple[Callable[[SocketEngine], Awaitable[object]], ...] = (
    lambda client: client.state(),
    lambda client: client.score(ScoreRequest(request_id="s", sequences=((1, 2),), starts=(1,))),
    lambda client: client.publish(Publication(version="v1", weights=folder_ref("/x", ""))),
    lambda client: client.retire("v1"),
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(token: int, version: str = "v0", *, last: bool = False) -> bytes:
    delta = Delta(token_ids=(token,), logprobs=(-1.0,), version=version, finish_reason="stop" if last else None)
    return b"data: " + wire.dumps(wire.chunk_to_json("r", delta)) + b"\n\n"


@asynccontextmanager
async def peer(path: Path, answer: bytes) -> AsyncIterator[SocketEngine]:
    """Reads one request, sends these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    client = SocketEngine(path)
    try:
        yield client
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (b"", []),
        (b"HTTP/1.1 200", []),
        (HEAD, []),
        (HEAD + chunk(event(5)), [5]),
        (HEAD + chunk(event(5)) + chunk(event(6)[:20]), [5]),
        (HEAD + chunk(event(5)) + END, [5]),
        (HEAD + chunk(event(5) + event(6)) + b"40\r\ndata: ", [5, 6]),
    ],
)
async def test_a_stream_that_breaks_is_an_engine_lost(tmp_path: Path, answer: bytes, tokens: list[int]) -> None:
    async with peer(tmp_path / "s", answer) as client:
        got, error = await until_error(client, ask([1]))
    assert isinstance(error, EngineLost)
    assert got == tokens


async def test_an_engine_may_have_a_url() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HEAD + chunk(event(5) + event(6, last=True)) + END)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = SocketEngine(f"http://127.0.0.1:{port}/base/")
        assert await until_error(client, ask([1])) == ([5, 6], None)
        await client.close()
    assert heads[0].startswith(b"POST /base/inference/v1/generate HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % port)


async def test_without_a_socket_the_engine_is_lost(tmp_path: Path) -> None:
    client = SocketEngine(tmp_path / "nobody")
    assert isinstance((await until_error(client, ask([1])))[1], EngineLost)
    for call in CALLS:
        with pytest.raises(EngineLost):
            await call(client)
    await client.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_whole_answer_that_breaks_is_an_engine_lost(
    tmp_path: Path, call: Callable[[SocketEngine], Awaitable[object]], answer: bytes
) -> None:
    async with peer(tmp_path / "s", answer) as client:
        with pytest.raises(EngineLost):
            await call(client)


async def test_events_that_wait_come_as_one_delta_for_each_version(tmp_path: Path) -> None:
    events = [event(1), event(2), event(3, "v1"), event(4, "v1", last=True), b"data: [DONE]\n\n"]
    async with peer(tmp_path / "s", HEAD + chunk(b"".join(events)) + END) as client:
        deltas = await all_deltas(client, ask([1]))
    assert [(d.token_ids, d.version, d.finish_reason) for d in deltas] == [
        ((1, 2), "v0", None),
        ((3, 4), "v1", "stop"),
    ]


async def test_events_may_be_cut_anywhere(tmp_path: Path) -> None:
    data = b"".join([event(1), event(2), event(3, last=True), b"data: [DONE]\n\n"])
    for cut in range(1, len(data), 7):
        async with peer(tmp_path / f"s{cut}", HEAD + chunk(data[:cut]) + chunk(data[cut:]) + END) as client:
            got, error = await until_error(client, ask([1]))
        assert (got, error) == ([1, 2, 3], None)


async def test_tokens_before_an_error_are_not_lost(tmp_path: Path) -> None:
    failure = b"data: " + wire.dumps(wire.error_to_json("broken", kind="engine_error")) + b"\n\ndata: [DONE]\n\n"
    async with peer(tmp_path / "s", HEAD + chunk(event(5) + failure) + END) as client:
        got, error = await until_error(client, ask([1]))
    assert got == [5]
    assert str(error) == "broken"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": 3}'])
async def test_an_error_page_that_is_not_ours_is_an_error(tmp_path: Path, body: bytes) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with peer(tmp_path / "s", answer) as client:
        _, error = await until_error(client, ask([1]))
    assert type(error) is EngineError
    assert "400" in str(error)
    for number, call in enumerate(CALLS):
        async with peer(tmp_path / f"s{number}", answer) as client:
            with pytest.raises(EngineError, match="400"):
                await call(client)

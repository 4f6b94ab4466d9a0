"""Streams as they happen: token by token, through silences, and cut off by the client at any byte."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from openclaw_rl.types import Skip, Turn
from tests.server import Server
from tests.wire.asking import CHAT, assert_healthy, connect, eventually, openai_client, reader, replies, stored, user

WORDS = " ".join(f"w{i}" for i in range(60))
BOOK = " ".join(f"w{i}" for i in range(2000))
EMOJI = "ﷺ👩‍👩‍👧‍👦🏴󠁧󠁢󠁷󠁬󠁳󠁿 é漢字𓀀 done"
RULES = replies(("^words", WORDS), ("^book", BOOK), ("^emoji", EMOJI))
TOKENS_PER_S = 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pace = f"engine.scripted.tokens_per_s={TOKENS_PER_S}"
    with Server(tmp_path_factory.mktemp("streaming") / "data", pace, RULES) as running:
        yield running
        assert_healthy(running)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One token in half a second, and a sign of life in every twentieth of one."""
    settings = ("engine.scripted.tokens_per_s=2", "gateway.keepalive_s=0.05", RULES)
    with Server(tmp_path_factory.mktemp("silent") / "data", *settings) as running:
        yield running


def request_bytes(server: Server, text: str, *, session: str, **body: Any) -> bytes:
    content = json.dumps({"messages": [user(text)], "session_id": session, **body}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    return f"{head}Authorization: Bearer {server.key}\r\n\r\n".encode() + content


def events(server: Server, text: str, **body: Any) -> Iterator[str]:
    request = {"messages": [user(text)], "stream": True, **body}
    with httpx.stream("POST", f"{server.url}{CHAT}", json=request, headers=server.headers, timeout=60) as response:
        assert response.status_code == 200
        yield from (line for line in response.iter_lines() if line)


def contents(lines: list[str]) -> list[str]:
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [text for chunk in chunks for c in chunk["choices"] if (text := c["delta"].get("content"))]


def test_tokens_arrive_while_others_are_still_to_come(server: Server) -> None:
    """Not a matter of timing: the turn is written only at the end, and is not there when the first token is."""
    stream = events(server, "words", session_id="one-by-one")
    seen = [next(stream) for _ in range(3)]
    assert contents(seen)
    assert reader(server).turn("one-by-one", 0) is None
    seen += stream
    assert seen[-1] == "data: [DONE]"
    pieces = contents(seen)
    assert "".join(pieces) == WORDS
    assert len(pieces) > 20
    turn = stored(server, "one-by-one.0")
    assert turn.message.content == WORDS
    assert turn.skip is None


def test_the_turn_is_on_disk_before_the_last_byte(server: Server) -> None:
    for line in events(server, "words", session_id="durable", stream_options={"include_usage": True}):
        if line == "data: [DONE]" or '"finish_reason":"stop"' in line or '"usage":{' in line:
            assert stored(server, "durable.0").message.content == WORDS


@pytest.mark.parametrize("logprobs", [False, True])
def test_characters_of_several_tokens_arrive_whole(server: Server, logprobs: bool) -> None:
    pieces = contents(list(events(server, "emoji", logprobs=logprobs)))
    assert "".join(pieces) == EMOJI
    assert not any("\ufffd" in piece for piece in pieces)


def test_silence_is_filled_with_comments(silent: Server) -> None:
    lines = list(events(silent, "words", max_tokens=3))
    assert lines[0].startswith("data: {")
    assert ": ping" in lines
    spoken = [line for line in lines if line != ": ping"]
    assert all(line.startswith("data: ") for line in spoken)
    assert spoken[-1] == "data: [DONE]"
    assert json.loads(spoken[0][6:])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert WORDS.startswith("".join(contents(lines)))


def test_the_openai_client_skips_the_comments(silent: Server) -> None:
    with openai_client(silent) as client:
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "words"}], max_tokens=3, stream=True
        )
        assert [c.choices[0].finish_reason for c in stream][-1] == "length"


CUTS = [0, 1, 20, 200, 400, 700, 1000, 1500, 2500]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
def test_hanging_up_at_any_byte_cancels_the_stream(server: Server, cut: int, reset: bool) -> None:
    session = f"stream-{cut}-{'reset' if reset else 'close'}"
    received = hang_up_after(server, request_bytes(server, "book", session=session, stream=True), cut, reset=reset)
    turn = aborted_turn(server, session)
    heard = "".join(
        json.loads(piece)["choices"][0]["delta"].get("content") or ""
        for piece in re.findall(rb"data: (\{.*?\})\n\n", received)
    )
    assert turn.message.content.startswith(heard)
    assert BOOK.startswith(turn.message.content)


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("n", [1, 3])
def test_hanging_up_cancels_an_answer_that_is_not_streamed(server: Server, reset: bool, n: int) -> None:
    session = f"whole-{n}-{'reset' if reset else 'close'}"
    hang_up_after(server, request_bytes(server, "book", session=session, n=n), 0, reset=reset)
    for index in range(n):
        aborted_turn(server, session, index)


def test_a_slow_reader_gets_everything(server: Server) -> None:
    """The answer waits for a client that reads little at a time; nothing is lost or out of order."""
    received = b""
    with connect(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(request_bytes(server, "words", session="slow-reader", stream=True))
        while b"[DONE]" not in received:
            data = connection.recv(64)
            assert data
            received += data
    lines = re.findall(rb"data: \{.*?\}\n", received)
    assert len(lines) > 20
    assert stored(server, "slow-reader.0").message.content == WORDS


def hang_up_after(server: Server, request: bytes, num_bytes: int, *, reset: bool) -> bytes:
    """Reads this many bytes of the answer, then goes: with a FIN, or with the RST of a client that died."""
    received = b""
    num_before = num_open_sessions(server)
    with connect(server) as connection:
        connection.sendall(request)
        eventually(lambda: num_open_sessions(server) > num_before)
        while len(received) < num_bytes:
            data = connection.recv(num_bytes - len(received))
            assert data
            received += data
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    return received


def num_open_sessions(server: Server) -> float:
    """Goes up when a request of a new session is taken in, which is all that can be seen of it before its answer."""
    found = re.search(r"openclaw_rl_open_sessions ([0-9.]+)", httpx.get(f"{server.url}/metrics").text)
    assert found
    return float(found.group(1))


def aborted_turn(server: Server, session: str, index: int = 0) -> Turn:
    """The partial turn, once it is stored. It is short because the engine stopped: the book has 7,000 tokens."""
    turn = eventually(lambda: reader(server).turn(session, index))
    assert turn.skip is Skip.ABORTED
    assert turn.completion.finish_reason == "abort"
    assert len(turn.completion.token_ids) < TOKENS_PER_S * 5
    assert not turn.delivered
    return turn

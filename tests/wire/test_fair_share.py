"""One user's long prompts are one user's: others are answered, nothing is counted that cannot fit, and a stop stops."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.server import Server
from tests.wire.asking import CHAT, Admin, assert_error, connect, eventually, text_of, user

WINDOW = 8_192
BLANKS = " " * (4 << 20)
"""Could all stand in the longest tokens, so that only tokenising tells; and nothing can stop that in its middle."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = (f"engine.context_window={WINDOW}", "gateway.max_reading_bytes=16777216", "gateway.max_feedback=3")
    with Server(tmp_path_factory.mktemp("fair") / "data", *limits) as running:
        yield running


def num_from(answer: httpx.Response) -> int:
    words = str(answer.json()["error"]["message"]).split()
    return int(words[words.index("tokens") - 1])


@pytest.mark.parametrize("text", ["a", "1 2 3, ", "The quick brown fox. ", "你好"])
def test_a_prompt_that_cannot_fit_is_refused_by_its_characters(server: Server, text: str) -> None:
    num = (1 << 20) // len(text.encode())
    answer = server.chat(text * num)
    assert assert_error(answer, 400)["code"] == "context_length_exceeded"
    assert answer.json()["error"]["message"].startswith("prompt is too long: ")
    assert num_from(answer) > 3 * WINDOW, "more than was counted until it was enough"


def test_others_are_answered_while_one_sends_what_is_long(server: Server) -> None:
    """The long ones are tokenised one after the other, in a line of their own."""
    body = json.dumps({"messages": [user(BLANKS[: 1 << 19])]}).encode()
    with Admin(server) as admin, ExitStack() as opened:
        _, ada = admin.add_key("ada")
        _, bob = admin.add_key("bob")
        for _ in range(6):
            connection = opened.enter_context(connect(server))
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {ada}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
        for text in ("hi " * 8_000, "hi"):
            answer = httpx.post(server.url + CHAT, json={"messages": [user(text)]}, headers={"x-api-key": bob})
            assert text_of(answer)


def test_nobody_fills_the_memory(server: Server) -> None:
    with ExitStack() as opened:
        key = server.key
        for _ in range(3):
            connection = opened.enter_context(connect(server))
            length = 3 << 20
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}\r\nContent-Length: {length}\r\n\r\n"
            connection.sendall(head.encode() + b'{"messages":"' + b"x" * (length - 20))
        answer = httpx.post(server.url + CHAT, content=b"x" * (4 << 20), headers=server.headers, timeout=60)
        assert assert_error(answer, 429)["code"] == "too_much_at_once"
        assert answer.headers["Retry-After"]
        with Admin(server) as admin:
            _, bob = admin.add_key("bob")
        other = httpx.post(server.url + CHAT, json={"messages": [user("hi")]}, headers={"x-api-key": bob})
        assert text_of(other)
    eventually(lambda: server.chat("is there room again? " + "x" * (1 << 19)).status_code == 400)


def test_a_body_that_the_window_could_not_hold_is_not_read(server: Server) -> None:
    answer = httpx.post(server.url + CHAT, content=b" " * (10 << 20), headers=server.headers, timeout=60)
    assert "bytes that are read here" in assert_error(answer, 413)["message"]
    note = httpx.post(f"{server.url}/v1/feedback", content=b" " * (2 << 20), headers=server.headers, timeout=60)
    assert_error(note, 413)


def test_a_turn_takes_only_so_much_feedback(server: Server) -> None:
    turn = server.chat("hi").headers["X-OpenClaw-RL-Turn"]
    given = [{"turn_id": turn, "text": f"{i}"} for i in range(5)]
    answers = [httpx.post(f"{server.url}/v1/feedback", json=one, headers=server.headers) for one in given]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 409, 409]
    assert assert_error(answers[-1], 409)["code"] == "too_much_feedback"


def test_too_many_tools_are_refused(server: Server) -> None:
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(1_025)]
    assert assert_error(server.chat("hi", tools=tools), 400)["param"] == "tools"


def test_a_stop_does_not_wait_for_what_is_tokenised(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "gateway.drain_s=0.2") as server, ExitStack() as opened:
        body = json.dumps({"messages": [user(BLANKS)]}).encode()
        for _ in range(8):
            connection = opened.enter_context(connect(server))
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert server.chat("hi").status_code == 200
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 0

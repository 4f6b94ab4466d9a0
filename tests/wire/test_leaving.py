"""Whoever leaves, leaves quietly: a client at any moment, a server with answers under way, a user without his key."""

from __future__ import annotations

import json
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.server import Server
from tests.wire.asking import CHAT, Admin, assert_healthy, connect, eventually, log_lines, reader, user

SLOW = ("engine.scripted.tokens_per_s=20", "gateway.keepalive_s=0.02", "gateway.drain_s=0.2")
LONG = json.dumps({"messages": [user("tell me a long story, word by word, please " * 20)], "stream": True}).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("leaving") / "data", *SLOW) as running:
        yield running
        assert running.stop() == 0
        assert_quiet(running)


def head(server: Server, *more: str, length: int = len(LONG)) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.key}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()


def leave(connection: socket.socket) -> None:
    """At once: the other side finds out when it writes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def assert_quiet(server: Server) -> None:
    """Nothing in the log is a defect, and nothing was printed that a person must make sense of."""
    assert [line for line in log_lines(server) if line["level"] in ("error", "critical")] == []
    logged = (server.data_dir / "run" / "log.jsonl").read_text() + (server.data_dir / "output.txt").read_text()
    assert "Traceback" not in logged
    assert "never retrieved" not in logged


def test_clients_that_leave_before_they_are_told_to_go_on(server: Server) -> None:
    for path in (CHAT, "/nowhere"):
        for _ in range(30):
            connection = connect(server)
            connection.sendall(head(server, "Expect: 100-continue").replace(CHAT.encode(), path.encode()))
            leave(connection)
    assert_healthy(server)
    assert_quiet(server)


def test_clients_that_leave_in_a_stream(server: Server) -> None:
    for number in range(12):
        connection = connect(server)
        connection.sendall(head(server) + LONG)
        connection.recv(1 + 40 * number)
        leave(connection)
    assert_healthy(server)
    assert_quiet(server)


@pytest.mark.parametrize("hurry", [False, True])
def test_a_server_that_leaves_in_a_stream(tmp_path: Path, hurry: bool) -> None:
    with Server(tmp_path / "data", *SLOW) as server, ExitStack() as opened:
        for _ in range(4):
            connection = opened.enter_context(connect(server))
            connection.sendall(head(server) + LONG)
            connection.recv(1)
        opened.enter_context(connect(server)).sendall(head(server, "Expect: 100-continue"))
        opened.enter_context(connect(server)).sendall(head(server) + LONG[:40])
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        if hurry:
            time.sleep(0.05)
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
        assert_quiet(server)


def test_a_revoked_key_ends_what_it_began(server: Server) -> None:
    with Admin(server) as admin, httpx.Client(base_url=server.url, timeout=30) as client:
        (key_id, secret), (_, other) = admin.add_key("ada"), admin.add_key("ada")
        waiting, body = connect(server), connect(server)
        get = f"GET /v1/rollouts?wait_s=60 HTTP/1.1\r\nHost: localhost\r\nx-api-key: {secret}\r\n\r\n"
        waiting.sendall(get.encode())
        body.sendall(head(server).replace(server.key.encode(), secret.encode()) + LONG[:40])
        with client.stream("POST", CHAT, content=LONG, headers={"x-api-key": secret}) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            admin.revoke(key_id)
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert events[-1]["error"]["message"] == "that API key was revoked"
        for connection in (waiting, body):
            with connection:
                answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 401 "), answer
            assert b"revoked" in answer
        assert client.get("/v1/models", headers={"x-api-key": secret}).status_code == 401
        assert client.get("/v1/models", headers={"x-api-key": other}).status_code == 200

    def kept() -> object:
        (session,) = reader(server).sessions("ada")
        return [turn for turn in reader(server).turns(session.session.id) if turn.completion.finish_reason == "abort"]

    assert eventually(kept), "what was sampled is kept, and never trained on"
    assert_quiet(server)


def test_a_revoked_key_cuts_off_who_does_not_read(server: Server) -> None:
    """Nobody waits for a client that takes nothing."""
    with Admin(server) as admin:
        key_id, secret = admin.add_key("bob")
        with connect(server) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            body = LONG.replace(b'"stream": true', b'"stream": true, "logprobs": true, "top_logprobs": 20, "n": 8')
            connection.sendall(head(server, length=len(body)).replace(server.key.encode(), secret.encode()) + body)
            connection.recv(1)
            admin.revoke(key_id)

            def ended() -> object:
                return [line for line in log_lines(server) if line.get("route") == CHAT]

            assert eventually(ended)
    assert_healthy(server)
    assert_quiet(server)

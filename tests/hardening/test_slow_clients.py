"""Hundreds of clients that send a byte now and then, or read none, and people who are answered meanwhile."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.hardening.report import report
from tests.server import Server
from tests.wire.asking import CHAT, assert_healthy, log_lines, text_of

REQUEST_TIMEOUT_S = 5.0
BODY = json.dumps({"messages": [{"role": "user", "content": "hi " * 400}], "stream": True, "n": 8}).encode()


def head(server: Server, *, length: int, key: bool = True) -> bytes:
    shown = f"Authorization: Bearer {server.key}\r\n" if key else ""
    return f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n{shown}Content-Length: {length}\r\n\r\n".encode()


WAYS: dict[str, Callable[[Server], bytes]] = {
    "says nothing": lambda server: b"",
    "begins its headers": lambda server: head(server, length=10)[:40],
    "begins its body": lambda server: head(server, length=30 << 10) + BODY[:10],
    "has no key": lambda server: head(server, length=30 << 10, key=False) + BODY[:10],
    "declares a large body": lambda server: head(server, length=8 << 20) + BODY[:10],
    "does not read": lambda server: head(server, length=len(BODY)) + BODY,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("num_clients", [60, pytest.param(500, marks=pytest.mark.hardening)])
def test_slow_clients_keep_nobody_waiting(tmp_path: Path, num_clients: int) -> None:
    with Server(tmp_path / "data", f"gateway.request_timeout_s={REQUEST_TIMEOUT_S}") as server, ExitStack() as opened:
        clients = []
        for _, way in zip(range(num_clients), itertools.cycle(WAYS.values()), strict=False):
            client = opened.enter_context(connect_slowly(server))
            client.sendall(way(server))
            clients.append(client)
        num_answered = 0
        for number in range(20):
            num_answered += bool(text_of(server.chat(f"honest question {number}")))
            for client in clients[number::20]:
                drip(client)
        assert_healthy(server)
        num_errors = sum(line["level"] in ("error", "critical") for line in log_lines(server))
        report("slow clients", clients=num_clients, honest=20, answered=num_answered, errors=num_errors)
        assert (num_answered, num_errors) == (20, 0)


def connect_slowly(server: Server) -> socket.socket:
    """A connection that takes hardly anything in."""
    address = urlsplit(server.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.settimeout(20)
    connection.connect((address.hostname, address.port))
    return connection


def drip(client: socket.socket) -> None:
    """One byte more, if the server still listens."""
    with suppress(OSError):
        client.send(b"x")

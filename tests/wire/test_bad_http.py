"""What no HTTP library would send: broken, oversized, slow and cut-off requests on plain sockets.

Each gets a 4xx or a clean end of the connection; none gets a 5xx, hangs, or is noticed by the next client.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import pytest

from tests.server import Server
from tests.wire.asking import CHAT, assert_error_body, assert_healthy, connect, log_lines, read_to_end, user

BODY = json.dumps({"messages": [user("hi")]}).encode()
HOST = b"Host: localhost\r\nConnection: close\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("http") / "data", "gateway.request_timeout_s=0.5") as running:
        yield running
        assert_healthy(running)
        assert [line for line in log_lines(running) if line["event"] == "unexpected error"] == []


def status_of(answer: bytes) -> int:
    found = re.match(rb"HTTP/\d\.\d (\d{3}) ", answer)
    assert found, answer[:200]
    return int(found.group(1))


def post(server: Server, *headers: bytes) -> bytes:
    lines = (HOST.strip(), b"Authorization: Bearer " + server.key.encode(), *headers)
    return b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def answer_to(server: Server, data: bytes, *, half_close: bool = False) -> bytes:
    """Sends `data` and reads the answer; the time limit of the socket catches a hang."""
    with connect(server) as connection:
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server closed before it had read everything: it has answered
        return read_answer(connection)


def read_answer(connection: socket.socket) -> bytes:
    """One whole answer, or what came before the server closed. After a refusal it may linger for the rest of a body."""
    received = b""
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and length and len(body) >= int(length.group(1)):
            return received
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not data:
            return received
        received += data


BROKEN = {
    "binary": bytes(range(32)) + b"\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "unknown version": b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "bare line feeds": b"GET /healthz HTTP/1.1\nHost: localhost\nConnection: close\n\n",
    "no host": b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
    "two hosts": GET + b"Host: evil.example\r\n\r\n",
    "folded header": GET + b"X-A: b\r\n c\r\n\r\n",
    "NUL in a header": GET + b"X-A: b\x00c\r\n\r\n",
    "carriage return in a header": GET + b"X-A: b\rc\r\n\r\n",
    "blank in a header name": GET + b"X A: b\r\n\r\n",
    "header without colon": GET + b"X-A\r\n\r\n",
    "header without name": GET + b": b\r\n\r\n",
    "1 MiB header": GET + b"X-A: " + b"x" * (1 << 20) + b"\r\n\r\n",
    "64 KiB header": GET + b"X-A: " + b"x" * (1 << 16) + b"\r\n\r\n",
    "64 KiB of headers": GET + b"".join(b"X-%d: %b\r\n" % (i, b"y" * 1024) for i in range(64)) + b"\r\n",
    "10,000 headers": GET + b"".join(b"X-%d: y\r\n" % i for i in range(10_000)) + b"\r\n",
    "1 MiB path": b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "64 KiB query": b"GET /healthz?" + b"x" * (1 << 16) + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "broken target": b"GET http://[::1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "odd verb": b"BREW /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
}

BROKEN_BODIES: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "length and chunks": ((b"Content-Length: 5", b"Transfer-Encoding: chunked"), b"0\r\n\r\n"),
    "chunks and length": ((b"Transfer-Encoding: chunked", b"Content-Length: 5"), b"0\r\n\r\n"),
    "two lengths": ((b"Content-Length: 5", b"Content-Length: 6"), b"12345"),
    "negative length": ((b"Content-Length: -5",), b"12345"),
    "length with a plus": ((b"Content-Length: +5",), b"12345"),
    "length in words": ((b"Content-Length: five",), b"12345"),
    "length 2^70": ((b"Content-Length: %d" % 2**70,), b"12345"),
    "unknown transfer coding": ((b"Transfer-Encoding: sideways",), b"12345"),
    "chunk size in words": ((b"Transfer-Encoding: chunked",), b"ZZ\r\nab\r\n"),
    "negative chunk size": ((b"Transfer-Encoding: chunked",), b"-2\r\nab\r\n0\r\n\r\n"),
    "chunk size 2^64": ((b"Transfer-Encoding: chunked",), b"10000000000000000\r\nab\r\n"),
    "chunk longer than it says": ((b"Transfer-Encoding: chunked",), b"1\r\nabcdef\r\n0\r\n\r\n"),
    "no body at all": ((), b""),
    "length 0": ((b"Content-Length: 0",), b""),
    "1 GiB declared": ((b"Content-Length: %d" % (1 << 30),), b"{" * (1 << 16)),
    "64 MiB in one chunk": ((b"Transfer-Encoding: chunked",), b"%x\r\n" % (64 << 20) + b" " * (33 << 20)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_request(server: Server, name: str) -> None:
    answer = answer_to(server, BROKEN[name])
    assert not answer or 400 <= status_of(answer) < 500


@pytest.mark.parametrize("name", BROKEN_BODIES)
def test_broken_body(server: Server, name: str) -> None:
    headers, body = BROKEN_BODIES[name]
    answer = answer_to(server, post(server, *headers) + body)
    assert 400 <= status_of(answer) < 500


def test_chunked_body(server: Server) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, BODY[i : i + 1]) for i in range(len(BODY))) + b"0\r\n\r\n"
    answer = answer_to(server, post(server, b"Transfer-Encoding: chunked") + chunks)
    assert status_of(answer) == 200
    assert b"You said: hi" in answer


def test_expectation_is_answered_before_the_body_comes(server: Server) -> None:
    head = post(server, b"Content-Length: %d" % len(BODY), b"Expect: 100-continue")
    with connect(server) as connection:
        connection.sendall(head)
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        connection.sendall(BODY)
        assert status_of(read_to_end(connection)) == 200


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    first = GET.replace(b"Connection: close\r\n", b"") + b"\r\n"
    with connect(server) as connection:
        connection.sendall(first + GET.replace(b"/healthz", b"/unknown") + b"\r\n")
        answer = read_to_end(connection)
    assert [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3})", answer)] == [200, 404]


@pytest.mark.parametrize("num_bytes", [0, 1, 10, len(BODY) - 1])
@pytest.mark.parametrize("half_close", [False, True])
def test_body_that_stops_halfway(server: Server, num_bytes: int, half_close: bool) -> None:
    """A client that stays gets a 408; one that hung up gets nothing, or as much."""
    head = post(server, b"Content-Length: %d" % len(BODY))
    answer = answer_to(server, head + BODY[:num_bytes], half_close=half_close)
    assert (half_close and not answer) or status_of(answer) in (400, 408)


def test_slow_body_is_a_408_in_our_shape(server: Server) -> None:
    answer = answer_to(server, post(server, b"Content-Length: 100") + b"{")
    assert status_of(answer) == 408
    assert_error_body(json.loads(answer.partition(b"\r\n\r\n")[2]))


@pytest.mark.parametrize("beginning", [b"", b"G", b"GET /healthz HTTP/1.1\r\n", GET, GET + b"X-Slow: "])
def test_slow_headers_end_the_connection(server: Server, beginning: bytes) -> None:
    """`gateway.request_timeout_s` holds for headers too; else a few idle sockets would be enough to exhaust us."""
    with connect(server) as connection:
        connection.settimeout(5)
        connection.sendall(beginning)
        answer = read_to_end(connection)
    assert not answer or status_of(answer) in (400, 408)


@pytest.mark.parametrize("name", ["64 KiB header", "10,000 headers", "NUL in a header"])
def test_refusals_below_http_have_our_shape_too(server: Server, name: str) -> None:
    answer = answer_to(server, BROKEN[name])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    assert_error_body(json.loads(body))


def test_idle_connections_do_not_disturb_others(server: Server) -> None:
    idle = [connect(server) for _ in range(100)]
    try:
        for connection in idle:
            connection.sendall(post(server, b"Content-Length: 100") + b"{")
        assert_healthy(server)
    finally:
        for connection in idle:
            connection.close()

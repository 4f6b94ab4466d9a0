from __future__ import annotations

import asyncio
from typing import cast

import pytest

from openclaw_rl.engine.worker.http import MAX_HEAD_BYTES, STREAM_LIMIT_BYTES, BadRequest, HttpRequest, read_request


class Written:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


async def read(data: bytes, written: Written | None = None) -> HttpRequest | None:
    reader = asyncio.StreamReader(limit=STREAM_LIMIT_BYTES)
    reader.feed_data(data)
    reader.feed_eof()
    return await read_request(reader, cast(asyncio.StreamWriter, written or Written()), max_body_bytes=1000)


async def test_a_request_is_read() -> None:
    request = await read(b"POST /a/b?x=1 HTTP/1.1\r\nHost: e\r\ncontent-LENGTH:  5 \r\n\r\nhello, and more")
    assert request == HttpRequest(method="POST", path="/a/b", body=b"hello", keep_alive=True)


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"])
async def test_a_connection_may_be_for_one_request(head: bytes) -> None:
    assert await read(head) == HttpRequest(method="GET", path="/", body=b"", keep_alive=False)


async def test_a_peer_that_asks_before_sending_is_told_to_go_on() -> None:
    written = Written()
    request = await read(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok", written)
    assert request is not None
    assert request.body == b"ok"
    assert written.data == b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_the_end_between_requests_is_no_error() -> None:
    assert await read(b"") is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost", 400),
        (b"GET /\r\n\r\n", 400),
        (b"\xff\xfe / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhello", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 2 * STREAM_LIMIT_BYTES, 431),
    ],
)
async def test_what_is_no_request_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refusal:
        await read(data)
    assert refusal.value.status == status

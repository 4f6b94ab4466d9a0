"""Bytes of a connection -> HTTP/1.1 requests, and the heads of answers.

As little of it as our own clients and curl use. Knows no routes. Bodies need a Content-Length; chunked request
bodies are refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
"""What a server of ours reads; its client refuses to send more, because an answer to a half-sent body may be lost."""
STREAM_LIMIT_BYTES = 1024 * 1024
"""What a reader buffers before it stops the peer: a prompt of 131072 ids fits, so its body is read in one go."""


class BadRequest(Exception):
    """What arrived is not a request we read; the connection cannot go on."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request with its whole body."""

    method: str
    path: str
    body: bytes
    keep_alive: bool


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_body_bytes: int
) -> HttpRequest | None:
    """The next request; None when the peer closed the connection between two of them."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise _head_too_long() from error
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadRequest("the connection ended inside the head of a request") from error
        return None
    if len(head) > MAX_HEAD_BYTES:
        raise _head_too_long()
    lines = head[:-4].split(b"\r\n")
    try:
        method, path, protocol = lines[0].decode("ascii").split(" ")
        pairs = [line.split(b":", 1) for line in lines[1:]]
        headers = {name.lower(): value.strip().lower() for name, value in pairs}
    except ValueError as error:
        raise BadRequest("malformed request line or header") from error
    if protocol not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(f"unsupported protocol {protocol[:16]!r}", status=505)
    num_bytes = _body_length(headers, max_body_bytes)
    if headers.get(b"expect") == b"100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await reader.readexactly(num_bytes) if num_bytes else b""
    except asyncio.IncompleteReadError as error:
        raise BadRequest(f"the body ended after {len(error.partial)} of {num_bytes} bytes") from error
    keep_alive = protocol == "HTTP/1.1" and headers.get(b"connection") != b"close"
    return HttpRequest(method=method, path=path.partition("?")[0], body=body, keep_alive=keep_alive)


def response_head(status: int, *headers: str) -> bytes:
    """The status line and headers of an answer, up to and including the empty line."""
    return "\r\n".join([f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *headers, "", ""]).encode()


def _head_too_long() -> BadRequest:
    return BadRequest(f"the head of the request exceeds {MAX_HEAD_BYTES} bytes", status=431)


def _body_length(headers: dict[bytes, bytes], max_body_bytes: int) -> int:
    if b"transfer-encoding" in headers:
        raise BadRequest("chunked request bodies are not read; send Content-Length", status=411)
    text = headers.get(b"content-length", b"0")
    if not text.isdigit() or len(text) > 18:
        raise BadRequest("Content-Length must be a number of bytes")
    num_bytes = int(text)
    if num_bytes > max_body_bytes:
        raise BadRequest(f"the body has {num_bytes} bytes; at most {max_body_bytes} are read", status=413)
    return num_bytes

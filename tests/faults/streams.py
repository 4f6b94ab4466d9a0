"""A client on a bare socket: it can stop at any byte, in either direction, politely or not."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import urlsplit

from tests.faults.crowd import text_of
from tests.server import Server


def request_bytes(server: Server, text: str, **body: Any) -> bytes:
    """A chat request as it goes over the wire."""
    content = json.dumps({"messages": [{"role": "user", "content": text}], **body}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {server.key}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Connection: close",
    )
    return "\r\n".join([*head, "", ""]).encode() + content


class BareClient:
    """One connection, one answer."""

    def __init__(self, server: Server, *, receive_buffer: int | None = None) -> None:
        address = urlsplit(server.url)
        assert address.hostname is not None
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(60)
        self._socket.connect((address.hostname, address.port or 80))
        self.received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_until(self, text: bytes, *, times: int = 1) -> None:
        """Reads until `text` has come so often."""
        while self.received.count(text) < times:
            data = self._socket.recv(65536)
            assert data, f"the server closed after {bytes(self.received[-300:])!r}"
            self.received += data

    def read_bytes(self, count: int) -> None:
        """Reads so many bytes, or as many as come."""
        while len(self.received) < count and (data := self._socket.recv(count - len(self.received))):
            self.received += data

    def read_all(self) -> None:
        """Reads until the server has closed or ended the chunked body."""
        while not self.received.endswith(b"\r\n0\r\n\r\n") and (data := self._socket.recv(65536)):
            self.received += data

    def leave(self, *, rudely: bool) -> None:
        """Closes with a FIN, or rudely with a RST."""
        if rudely:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def turn_id(self) -> str:
        return self._head["x-openclaw-rl-turn"]

    @property
    def _head(self) -> dict[str, str]:
        head, _, _ = self.received.partition(b"\r\n\r\n")
        lines = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        return {name.lower(): value for name, value in lines}

    @property
    def is_complete(self) -> bool:
        return b"data: [DONE]\n\n" in self.received[-200:]

    @property
    def text(self) -> str:
        """What the events so far add up to."""
        return text_of(self.events)

    @property
    def events(self) -> Sequence[dict[str, Any]]:
        lines = self.received.split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {") and line.endswith(b"}")]

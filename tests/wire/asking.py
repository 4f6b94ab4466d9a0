"""What the tests of the wire share: clients of a running server, and a look at what it kept."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from openai import OpenAI

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Json, Session, Turn, split_turn_id
from tests.server import Server

T = TypeVar("T")

CHAT = "/v1/chat/completions"
PATIENCE_S = 20.0
"""How long a test waits for something that should happen at once, on a machine that may be busy."""


def replies(*rules: tuple[str, str]) -> str:
    """The setting that makes the scripted engine answer `reply` where `match` is found."""
    return "engine.scripted.replies=" + json.dumps([{"match": match, "reply": reply} for match, reply in rules])


def openai_client(server: Server, **options: Any) -> OpenAI:
    """The real client library. It does not retry by itself, so that one call is one request."""
    return OpenAI(base_url=f"{server.url}/v1", **{"api_key": server.key, "max_retries": 0, "timeout": 60, **options})


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def bot(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def text_of(response: httpx.Response) -> str:
    """The text of an answer that must be one."""
    assert response.status_code == 200, response.text
    content = response.json()["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def turn_of(server: Server, headers: Mapping[str, str]) -> Turn:
    """The stored turn that an answer names in its headers."""
    return stored(server, headers["X-OpenClaw-RL-Turn"])


def stored(server: Server, turn_id: str) -> Turn:
    session, index = split_turn_id(turn_id)
    turn = reader(server).turn(session, index)
    assert turn is not None, f"{turn_id} was answered but is not in the store"
    return turn


def closed(server: Server, session_id: str) -> Session | None:
    """A session, if it is over."""
    session = reader(server).session(session_id)
    return session if session is not None and session.closed_at is not None else None


def reader(server: Server) -> StoreReader:
    return StoreReader.open(server.data_dir)


def eventually(look: Callable[[], T | None], *, timeout_s: float = PATIENCE_S) -> T:
    """What `look` finds, once it finds something."""
    end = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"did not happen within {timeout_s} s"
        time.sleep(0.01)


def assert_error(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    """An error as OpenAI writes it, which tells nothing about the machine behind it."""
    assert response.status_code in statuses, f"{response.status_code} instead of {statuses}: {response.text[:500]}"
    assert response.headers["content-type"].split(";")[0] == "application/json", response.text[:500]
    return assert_error_body(response.json())


def assert_error_body(body: Json) -> dict[str, Any]:
    assert isinstance(body, dict)
    assert list(body) == ["error"]
    error = body["error"]
    assert isinstance(error, dict)
    assert set(error) == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["param"] is None or (isinstance(error["param"], str) and error["param"]), error
    assert error["code"] is None or isinstance(error["code"], str)
    assert len(json.dumps(error)) < 4096, "an error must not send the request back"
    for trace in ("Traceback", '.py"', ".sqlite3", "/site-packages/", "<class", "object at 0x"):
        assert trace not in error["message"]
    return error


class Admin:
    """The admin socket, as commands use it."""

    def __init__(self, server: Server) -> None:
        address = json.loads((server.data_dir / "run" / "address.json").read_text())
        self._client = httpx.Client(transport=httpx.HTTPTransport(uds=address["admin"]), base_url="http://admin")

    def add_key(self, user: str) -> tuple[str, str]:
        """A new key: its id, and the secret."""
        answer = self._client.post("/keys", json={"user": user}).raise_for_status().json()
        return answer["id"], answer["key"]

    def revoke(self, key_id: str) -> None:
        self._client.delete(f"/keys/{key_id}").raise_for_status()

    def forget(self, **what: str) -> dict[str, Any]:
        """`openclaw-rl forget`, of a `session` or a `user`."""
        told = self._client.post("/forget", json=what, timeout=60).raise_for_status().json()
        assert isinstance(told, dict)
        return told

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def connect(server: Server) -> socket.socket:
    """A plain TCP connection, for what no HTTP library would send."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    connection = socket.create_connection((address.hostname, address.port or 80), timeout=PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes; the socket's time limit is the test's."""
    received = b""
    while True:
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not data:
            return received
        received += data


def log_lines(server: Server) -> list[dict[str, Any]]:
    """The server's own log."""
    return [json.loads(line) for line in (server.data_dir / "run" / "log.jsonl").read_text().splitlines()]


def assert_healthy(server: Server) -> None:
    """It still runs and still answers."""
    assert server.process is not None
    assert server.process.poll() is None, (server.data_dir / "output.txt").read_text()[-2000:]
    assert text_of(server.chat("are you there?"))

"""Who may call what, from where; and that no key and no word of a conversation leaves the store."""

from __future__ import annotations

import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from openclaw_rl.types import Feedback
from tests.server import Server
from tests.wire.asking import CHAT, Admin, assert_error, connect, read_to_end, reader, text_of, user

MODEL = "smollm2-135m-instruct"
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
ROUTES: dict[str, tuple[str, ...]] = {
    # path: the verbs that it takes
    CHAT: ("POST",),
    "/v1/feedback": ("POST",),
    "/v1/models": ("GET", "HEAD"),
    f"/v1/models/{MODEL}": ("GET", "HEAD"),
    "/healthz": ("GET", "HEAD"),
    "/readyz": ("GET", "HEAD"),
    "/metrics": ("GET", "HEAD"),
    "/unknown": (),
    "/v1/chat/completions/": (),
    "/": (),
}
LOCKED = (CHAT, "/v1/feedback", f"/v1/models/{MODEL}")
"""`/v1/models` is open to those who show no key: agents look there to see whether a server is one."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("access") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as made:
        yield made


def check(response: httpx.Response, verb: str, *statuses: int) -> None:
    if response.status_code < 400 or verb == "HEAD":
        assert response.status_code in statuses
    else:
        assert_error(response, *statuses)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", ROUTES)
def test_routes_and_verbs(client: httpx.Client, server: Server, path: str, verb: str) -> None:
    content = json.dumps({"messages": [user("hi")]}) if verb == "POST" else None
    stranger = client.request(verb, path, content=content)
    wrong = client.request(verb, path, content=content, headers={"Authorization": "Bearer ocrl-wrong"})
    right = client.request(verb, path, content=content, headers=server.headers)
    if not ROUTES[path]:
        expected = (404, 404, 404)
    elif verb not in ROUTES[path]:
        expected = (405, 405, 405)
    elif path in LOCKED:
        expected = (401, 401, 400 if path == "/v1/feedback" else 200)
    elif path == "/v1/models":
        expected = (200, 401, 200)
    else:
        expected = (200, 200, 200)
    for response, status in zip((stranger, wrong, right), expected, strict=True):
        check(response, verb, status)
        assert response.headers["X-Request-Id"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in response.headers
        if status == 405:
            assert set(response.headers["Allow"].split(",")) == set(ROUTES[path])


@pytest.mark.parametrize(
    "header",
    [
        {"Host": "evil.example"},
        {"Host": "0.0.0.0"},
        {"Host": "localhost.evil.example"},
        {"Host": "127.0.0.1.nip.example:30000"},
        {"Host": ""},
        {"Host": "localhost@evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "https://localhost.evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://localhost@evil.example"},
        {"Origin": "file://"},
    ],
    ids=lambda header: "-".join(f"{k}-{v}" for k, v in header.items()),
)
def test_strange_hosts_and_origins_are_refused_everywhere(
    client: httpx.Client, server: Server, header: dict[str, str]
) -> None:
    for path, verb in itertools.product(ROUTES, VERBS):
        check(client.request(verb, path, headers={**server.headers, **header}), verb, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST", "localhost:30000", "[::1]", "[::1]:8000"])
def test_our_own_hosts(client: httpx.Client, server: Server, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200
    own = {"Host": host, "Origin": f"http://{host}", **server.headers}
    assert text_of(client.post(CHAT, json={"messages": [user("hi")]}, headers=own))


def test_allowed_hosts_and_origins(tmp_path: Path) -> None:
    settings = ('gateway.allowed_hosts=["box.lan"]', 'gateway.allowed_origins=["https://app.example"]')
    with Server(tmp_path / "data", *settings) as server:
        for headers in ({"Host": "box.lan:30000"}, {"Origin": "https://app.example"}):
            assert httpx.get(f"{server.url}/healthz", headers=headers).status_code == 200
        for headers in ({"Host": "box2.lan"}, {"Origin": "https://app.example.evil.example"}):
            assert_error(httpx.get(f"{server.url}/healthz", headers=headers), 403)


def test_no_simple_request_of_a_page_gets_through(client: httpx.Client) -> None:
    """A page can post text without asking first; without the key nothing comes of it."""
    content = json.dumps({"messages": [user("hi")]})
    assert_error(client.post(CHAT, content=content, headers={"Content-Type": "text/plain"}), 401)


def test_web_sockets_are_not_opened(server: Server) -> None:
    upgrade = (
        "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
    )
    with connect(server) as connection:
        connection.sendall(f"GET {CHAT} HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n".encode())
        assert read_to_end(connection).startswith(b"HTTP/1.1 4")


def test_both_key_headers(client: httpx.Client, server: Server) -> None:
    for headers in (
        {"Authorization": f"Bearer {server.key}"},
        {"Authorization": f"bearer {server.key}"},
        {"Authorization": f"Bearer   {server.key}"},
        {"x-api-key": server.key},
        {"X-Api-Key": server.key, "Authorization": "Basic eDp5"},
    ):
        assert text_of(client.post(CHAT, json={"messages": [user("hi")]}, headers=headers))


def wrong_keys(key: str) -> dict[str, str | bytes]:
    return {
        "empty": "",
        "prefix": key[:-1],
        "suffix": key[1:],
        "longer": key + "x",
        "other case": key.swapcase(),
        "SQL": "' OR 1=1 --",
        "not ASCII": "schlüssel".encode(),
        "not UTF-8": b"\xff\xfe\xfa",
        "16 KB": "k" * 16_000,
        "a digest": "0" * 64,
        "path": "../key",
    }


@pytest.mark.parametrize("name", wrong_keys("ocrl-key"))
@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
def test_wrong_keys(client: httpx.Client, server: Server, name: str, header: str) -> None:
    key = wrong_keys(server.key)[name]
    shown = key if isinstance(key, bytes) else key.encode()
    value = b"Bearer " + shown if header == "Authorization" else shown
    value = value.strip()  # no client library sends blanks at the end
    for path in LOCKED:
        verb = ROUTES[path][0]
        headers = [(header.encode(), value)]
        error = assert_error(client.request(verb, path, headers=headers), 401)
        assert error["code"] in ("invalid_api_key", "missing_api_key")
        assert error["type"] == "authentication_error"


def test_a_revoked_key_stops_at_once(client: httpx.Client, server: Server) -> None:
    with Admin(server) as admin:
        key_id, secret = admin.add_key("carol")
        headers = {"x-api-key": secret}
        assert text_of(client.post(CHAT, json={"messages": [user("hi")]}, headers=headers))
        admin.revoke(key_id)
    assert_error(client.post(CHAT, json={"messages": [user("hi")]}, headers=headers), 401)
    kept = {key.id: key for key in list(reader(server).keys())}
    assert kept[key_id].revoked_at is not None
    assert text_of(server.chat("the others still work"))


def test_keys_are_hashed_in_the_store(server: Server) -> None:
    files = [path for path in server.data_dir.rglob("*") if path.is_file() and path.name not in ("key", "output.txt")]
    assert any("sqlite3" in path.name for path in files)
    assert [path for path in files if server.key.encode() in path.read_bytes()] == []


def test_files_are_for_their_owner_alone(server: Server) -> None:
    """The directory is 0700, so what is inside need not be; these say it anyway."""
    assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
    for name in ("key", "store.sqlite3", "store.sqlite3-wal", "writer.lock", "run/log.jsonl", "run/config.yaml"):
        assert stat.S_IMODE((server.data_dir / name).stat().st_mode) & 0o077 == 0, name
    admin = json.loads((server.data_dir / "run" / "address.json").read_text())["admin"]
    assert stat.S_IMODE(os.stat(admin).st_mode) & 0o077 == 0


def test_no_word_and_no_key_in_logs_and_metrics(tmp_path: Path) -> None:
    secret = "xyzzy-plugh-9137"
    with Server(tmp_path / "data", "gateway.request_timeout_s=1", "engine.context_window=4096") as server:
        say = [user(f"my secret is {secret}")]
        text_of(server.chat(say, session_id="s"))
        server.chat(say, stream=True)
        server.chat([{"role": secret, "content": secret}])
        server.chat(say * 2000)
        server.chat(say, model=f"{secret}@v9")
        server.chat(say, stop=[secret] * 100, metadata={secret: secret})
        server.chat(say, headers={"X-Session-Id": f"{secret} {secret}"})
        server.chat(say, headers={"X-Turn-Type": secret})
        feedback = {"turn_id": "s.0", "score": 1, "text": secret}
        httpx.post(f"{server.url}/v1/feedback", json=feedback, headers=server.headers).raise_for_status()
        httpx.get(f"{server.url}/v1/models/{secret}", headers=server.headers)
        httpx.get(f"{server.url}/{secret}?{secret}={secret}")
        httpx.get(f"{server.url}/healthz", headers={"Authorization": f"Bearer {server.key}", "Host": secret})
        broken = [
            f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\0\r\n\r\n",
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{secret}\r\n",
            f"{secret}\r\n\r\n",
            f"GET /{secret} HTTP/7\r\n\r\n",
        ]
        for data in broken:
            with connect(server) as connection:
                connection.sendall(data.encode())
                read_to_end(connection)
        metrics = httpx.get(f"{server.url}/metrics").text
        key = server.key
        server.stop()
    assert "openclaw_rl_requests_total" in metrics
    seen = {"metrics": metrics.encode(), "output": (tmp_path / "data" / "output.txt").read_bytes()}
    seen |= {path.name: path.read_bytes() for path in (tmp_path / "data" / "run").rglob("*") if path.is_file()}
    assert b'"request"' in seen["log.jsonl"]
    assert [name for name, data in seen.items() if secret.encode() in data] == []
    # The terminal shows the key once, to the person who starts the system.
    assert [name for name, data in seen.items() if key.encode() in data and name != "output"] == []
    assert seen["output"].count(key.encode()) <= 1


def test_open_to_others_without_a_key_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "gateway.host=0.0.0.0", "gateway.require_key=false")
    assert refusal_of(server, 2) == "gateway.require_key"
    assert not (tmp_path / "data" / "run" / "address.json").exists()


def refusal_of(server: Server, status: int) -> str:
    """What the server says when it does not start; the setting that it names as the remedy."""
    server.start(wait=False)
    assert server.process is not None
    assert server.process.wait(timeout=60) == status
    said = (server.data_dir / "output.txt").read_text()
    assert "Traceback" not in said
    assert "require_key=true" in said.replace("\n", "")
    return "gateway.require_key"


def test_without_a_key_on_loopback(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "gateway.require_key=false") as server:
        response = httpx.post(f"{server.url}{CHAT}", json={"messages": [user("hi")]})
        assert text_of(response) == "You said: hi"
        foreign = {"Origin": "http://evil.example"}
        assert_error(httpx.post(f"{server.url}{CHAT}", json={"messages": [user("hi")]}, headers=foreign), 403)


def test_a_second_writer_is_refused(server: Server) -> None:
    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "openclaw_rl",
            "up",
            "--data-dir",
            server.data_dir,
            "--port",
            "0",
            "engine.type=scripted",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    said = second.stdout + second.stderr
    assert second.returncode not in (0, -9)
    assert "Traceback" not in said
    assert str(server.data_dir) in said.replace("\n", "")
    assert text_of(server.chat("the first one goes on"))


def test_feedback_is_stored(client: httpx.Client, server: Server) -> None:
    turn_id = server.chat("rate me", session_id="rated").headers["X-OpenClaw-RL-Turn"]
    given = [
        {"turn_id": turn_id, "score": 1},
        {"turn_id": turn_id, "rating": "👎", "text": "too long"},
        {"turn_id": turn_id, "text": "say it in French"},
        {"turn_id": turn_id, "score": 0},
    ]
    for feedback in given:
        answer = client.post("/v1/feedback", json=feedback, headers=server.headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["turn_id"] == turn_id
    kept: list[Feedback] = reader(server).feedback("rated")
    assert [(f.score, f.text) for f in kept] == [(1, ""), (-1, "too long"), (None, "say it in French"), (0, "")]
    assert {f.user for f in kept} == {"local"}


def test_feedback_on_what_is_not_ours(client: httpx.Client, server: Server) -> None:
    turn_id = server.chat("mine", session_id="not-yours").headers["X-OpenClaw-RL-Turn"]
    with Admin(server) as admin:
        _, key = admin.add_key("dave")
    theirs = {"Authorization": f"Bearer {key}"}
    foreign = assert_error(client.post("/v1/feedback", json={"turn_id": turn_id, "score": -1}, headers=theirs), 404)
    missing = {"turn_id": "not-yours.99", "score": -1}
    unknown = assert_error(client.post("/v1/feedback", json=missing, headers=server.headers), 404)
    assert foreign["code"] == unknown["code"]
    assert reader(server).feedback("not-yours") == []

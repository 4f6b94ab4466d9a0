"""Random requests against the running server: whatever comes in, out goes a success or a 4xx in its dialect's shape."""

from __future__ import annotations

import copy
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openclaw_rl.types import Json
from tests.server import Server
from tests.wire.asking import CHAT, assert_error_body, assert_healthy, log_lines

NUM_BODIES, NUM_BYTES, NUM_ROUTES, NUM_FEEDBACK, NUM_HEADERS = 500, 300, 300, 100, 250
PATIENCE_S = 60.0
"""Generous, because the machine may be busy; a request that blocks the server for longer is a defect."""

FUZZ = settings(
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Target:
    """A server under fuzz, over one connection that is kept alive as long as the server keeps it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.num_requests = 0
        self._headers = server.headers
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.server.url)
        return http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)

    def send(self, verb: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> int:
        """One request; its status, after everything that must hold of any answer was checked."""
        try:
            self._connection.request(verb, path, body, {**self._headers, **(headers or {})})
            answer = self._connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, ConnectionError):
            # The server may close a connection whose request it could not make sense of; then it must still be there.
            self._connection.close()
            self._connection = self._connect()
            self._connection.request("GET", "/healthz")
            answer = self._connection.getresponse()
            content = answer.read()
            assert answer.status == 200
        self.num_requests += 1
        if answer.status == 503:
            assert answer.getheader("Retry-After")
        else:
            assert 200 <= answer.status < 300 or 400 <= answer.status < 500, (answer.status, content[:300])
        if answer.status >= 400 and verb != "HEAD":
            assert answer.getheader("Content-Type", "").startswith("application/json"), content[:300]
            self._check_error(path, json.loads(content))
        return answer.status

    def _check_error(self, path: str, body: Json) -> None:
        if not path.startswith("/v1/messages"):
            assert_error_body(body)
            return
        assert body["type"] == "error"
        assert isinstance(body["error"]["type"], str)
        assert body["error"]["message"]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def fuzzed(folder: Path) -> Iterator[Target]:
    """A server that must be sound after everything that was sent."""
    limits = ("engine.context_window=4096", "gateway.max_tokens_limit=5000")
    with Server(folder / "data", *limits) as server:
        made = Target(server)
        yield made
        made.close()
        assert_healthy(server)
        events = {line["event"] for line in log_lines(server) if line["level"] in ("error", "critical")}
        assert events == set()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with fuzzed(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


def odd_text() -> st.SearchStrategy[str]:
    listed = [
        "",
        "\0",
        "\x7f",
        "\ufffe",
        "\u202e",
        "🙂",
        "<|im_end|>",
        "%s{}",
        "../../key",
        "Runtime: session=\x01",
        "\n" * 99,
    ]
    return st.sampled_from(listed) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**12, 1e308, -0.0, 0.5, 5e-324])
    | st.floats(allow_nan=False, allow_infinity=False)
    | odd_text()
)
JSON: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_text(), inner, max_size=4),
    max_leaves=12,
)
DEEP = st.integers(1, 2000).map(lambda depth: f"@nested {depth}@")
"""Stands for lists in lists; `encoded` puts them there, because Python's own tools give up on such values."""
VALUES = JSON | DEEP

VALID: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "hi"}]},
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "sunny", "name": "f"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "d",
                    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                },
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    },
    {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "stop": ["x"],
        "n": 2,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 2,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": 1},
        "response_format": {"type": "text"},
        "user": "u",
        "metadata": {"a": "b"},
        "session_id": "fuzz",
        "turn_type": "main",
        "session_done": False,
        "prompt_cache_key": "k",
    },
    {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
]
FEEDBACK: list[dict[str, Any]] = [
    {"turn_id": "fuzz.0", "score": 1, "text": "good"},
    {"turn_id": "fuzz.0", "rating": "up"},
]


def places(value: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value inside of `value`, itself included."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, valid: list[dict[str, Any]]) -> Json:
    """A valid body with one to three places replaced, removed, added to, or turned into their text."""
    body: Json = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(body)))
        change = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "wrap", "to text", "repeat"]))
        body = changed(draw, body, path, change)
    return body


def changed(draw: st.DrawFn, body: Json, path: tuple[Any, ...], change: str) -> Json:
    if not path:
        keep = isinstance(body, dict) and draw(st.integers(0, 9)) > 0
        return {**body, draw(odd_text()): draw(VALUES)} if keep else draw(VALUES)
    parent = body
    for key in path[:-1]:
        parent = parent[key]
    last = path[-1]
    match change:
        case "replace":
            parent[last] = draw(VALUES)
        case "remove":
            del parent[last]
        case "add" if isinstance(parent[last], dict):
            parent[last][draw(odd_text())] = draw(VALUES)
        case "wrap":
            parent[last] = [parent[last]]
        case "to text":
            parent[last] = json.dumps(parent[last])
        case _:
            parent[last] = [copy.deepcopy(parent[last])] * draw(st.integers(0, 20))
    return body


def encoded(value: Json) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    text = re.sub(r'\\*"@nested (\d+)@\\*"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), text)
    return text.encode("utf-8", "surrogatepass")


@settings(FUZZ, max_examples=NUM_BODIES)
@given(body=mutated(VALID))
def test_mutated_chats(target: Target, body: Json) -> None:
    target.send("POST", CHAT, encoded(body))


@settings(FUZZ, max_examples=NUM_FEEDBACK)
@given(body=mutated(FEEDBACK))
def test_mutated_feedback(target: Target, body: Json) -> None:
    target.send("POST", "/v1/feedback", encoded(body))


@settings(FUZZ, max_examples=NUM_BYTES)
@given(data=st.binary(max_size=200), at=st.integers(0, 400), path=st.sampled_from([CHAT, "/v1/feedback"]))
def test_random_bytes(target: Target, data: bytes, at: int, path: str) -> None:
    """Alone, or in the middle of a body that was valid."""
    valid = encoded(VALID[1])
    body = data if at > 300 else valid[:at] + data + valid[at + len(data) :]
    target.send("POST", path, body)


@settings(FUZZ, max_examples=NUM_ROUTES)
@given(
    verb=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW", "M-SEARCH"]),
    stem=st.sampled_from(
        ["", "/v1", "/v1/models", "/v1/models/", CHAT, "/v1/feedback", "/healthz", "/metrics", "/readyz"]
    ),
    rest=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=30),
)
def test_random_routes(target: Target, verb: str, stem: str, rest: str) -> None:
    target.send(verb, (stem + rest) if (stem + rest).startswith("/") else f"/{stem}{rest}", b"")


HEADERS = [
    "X-Session-Id",
    "X-Session-Affinity",
    "session_id",
    "X-Turn-Type",
    "X-Session-Done",
    "X-No-Train",
    "X-Request-Id",
    "User-Agent",
    "Accept",
    "Accept-Encoding",
    "Content-Type",
    "Content-Encoding",
    "Expect",
    "Range",
    "If-Match",
    "Origin",
    "Host",
    "Authorization",
    "x-api-key",
    "X-Forwarded-For",
    "Cookie",
    "TE",
    "Upgrade",
]
HEADER_VALUES = st.sampled_from(
    ["", "*", "gzip", "chunked", "null", "localhost", "100-continue", "a,b;q=0", "x" * 300]
) | st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)


@settings(FUZZ, max_examples=NUM_HEADERS)
@given(headers=st.dictionaries(st.sampled_from(HEADERS), HEADER_VALUES, min_size=1, max_size=4))
def test_random_headers(target: Target, headers: dict[str, str]) -> None:
    target.send("POST", CHAT, encoded(VALID[0]), headers)


def test_that_was_enough(target: Target) -> None:
    """Runs after the others, on what they have sent."""
    assert target.num_requests >= 1400

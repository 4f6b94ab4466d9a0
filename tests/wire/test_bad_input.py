"""Bodies that are wrong in every way we know: each is a 4xx in OpenAI's shape, and the server goes on unmoved.

What never reaches a parser of ours (broken HTTP, slow and cut-off bodies) is in `test_bad_http.py`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server import Server
from tests.wire.asking import CHAT, assert_error, assert_healthy, log_lines, text_of, user

MAX_BODY = 4 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = (f"gateway.max_body_bytes={MAX_BODY}", "gateway.max_messages=4096", "engine.context_window=8192")
    with Server(tmp_path_factory.mktemp("bad") / "data", *settings) as running:
        yield running
        assert_healthy(running)
        assert [line for line in log_lines(running) if line["event"] == "unexpected error"] == []


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=20) as made:
        yield made


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def body(**fields: Any) -> str:
    return json.dumps({"messages": [user("hi")], **fields})


def with_raw(field: str, value: str) -> str:
    """A valid body with one more field, whose JSON need not be valid."""
    return f'{{"messages": [{{"role": "user", "content": "hi"}}], "{field}": {value}}}'


def saying(content: Any, **fields: Any) -> str:
    return json.dumps({"messages": [{"role": "user", "content": content, **fields}]})


def call(**function: Any) -> str:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", **function}}]
    return json.dumps({"messages": [user("hi"), {"role": "assistant", "content": None, "tool_calls": calls}]})


def tool(**function: Any) -> str:
    return body(tools=[{"type": "function", "function": {"name": "f", **function}}])


NOT_JSON: dict[str, str | bytes] = {
    "empty": "",
    "white space": "  \n",
    "truncated": '{"messages": [',
    "trailing comma": '{"messages": [],}',
    "two documents": body() * 2,
    "single quotes": "{'messages': []}",
    "byte order mark": b"\xef\xbb\xbf" + body().encode(),
    "UTF-16": body().encode("utf-16"),
    "UTF-32": body().encode("utf-32"),
    "Latin-1": '{"messages": "é"}'.encode("latin-1"),
    "lone surrogate, escaped": r'{"messages": [{"role": "user", "content": "\ud800"}]}',
    "lone surrogate, as bytes": '{"messages": [{"role": "user", "content": "\ud800"}]}'.encode(
        "utf-8", "surrogatepass"
    ),
    "surrogate in a key": r'{"\udfff": 1, "messages": [{"role": "user", "content": "hi"}]}',
    "raw NUL": b'{"messages": [{"role": "user", "content": "a\x00b"}]}',
    "raw newline in a string": b'{"messages": [{"role": "user", "content": "a\nb"}]}',
    "NaN": with_raw("temperature", "NaN"),
    "Infinity": with_raw("temperature", "Infinity"),
    "-Infinity": with_raw("temperature", "-Infinity"),
    "1e400": with_raw("temperature", "1e400"),
    "5,000 digits": with_raw("max_tokens", "9" * 5000),
    "nested 100,000 deep": nested(100_000),
    "form": "messages=hi&model=x",
    "binary": bytes(range(256)),
}

NOT_AN_OBJECT = {"array": "[]", "null": "null", "text": '"messages"', "number": "1", "true": "true"}

WRONG: dict[str, tuple[str, str | None]] = {
    # name: (body, the `param` that the error must name; None where any will do)
    "no messages": ("{}", "messages"),
    "messages empty": ('{"messages": []}', "messages"),
    "messages null": ('{"messages": null}', "messages"),
    "messages a text": ('{"messages": "hi"}', "messages"),
    "messages an object": ('{"messages": {"role": "user"}}', "messages"),
    "message a text": ('{"messages": ["hi"]}', "messages.0"),
    "message null": ('{"messages": [null]}', "messages.0"),
    "message without role": ('{"messages": [{"content": "hi"}]}', "messages.0.role"),
    "second message wrong": (json.dumps({"messages": [user("hi"), {"role": 7}]}), "messages.1.role"),
    "unknown role": (json.dumps({"messages": [{"role": "narrator", "content": "hi"}]}), "messages.0.role"),
    "empty role": (json.dumps({"messages": [{"role": "", "content": "hi"}]}), "messages.0.role"),
    "huge role": (json.dumps({"messages": [{"role": "r" * 100_000, "content": "hi"}]}), "messages.0.role"),
    "content a number": (saying(7), None),
    "content an object": (saying({"type": "text", "text": "hi"}), None),
    "content of texts": (saying(["hi"]), None),
    "part without type": (saying([{"text": "hi"}]), "messages.0.content.0.type"),
    "part of unknown type": (saying([{"type": "hologram"}]), "messages.0.content.0.type"),
    "part type huge": (saying([{"type": "t" * 100_000}]), "messages.0.content.0.type"),
    "part type nested": (
        '{"messages": [{"role": "user", "content": [{"type": ' + nested(1000) + "}]}]}",
        None,
    ),
    "text part without text": (saying([{"type": "text"}]), "messages.0.content.0.text"),
    "text part null": (saying([{"type": "text", "text": None}]), "messages.0.content.0.text"),
    "image to this machine": (
        saying([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]),
        "messages.0.content.0",
    ),
    "image of the cloud's metadata": (
        saying([{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}]),
        "messages.0.content.0",
    ),
    "image by an odd address": (
        saying([{"type": "image_url", "image_url": {"url": "http://a\\@127.0.0.1/"}}]),
        "messages.0.content.0",
    ),
    "image from a file": (
        saying([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]),
        "messages.0.content.1",
    ),
    "audio": (saying([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]), "messages.0.content.0"),
    "file": (saying([{"type": "file", "file": {"file_id": "../../key"}}]), "messages.0.content.0"),
    "NUL in text": (saying("a\0b"), "messages.0.content"),
    "NUL in a part": (saying([{"type": "text", "text": "a\0b"}]), "messages.0.content"),
    "NUL in reasoning": (
        json.dumps({"messages": [user("hi"), {"role": "assistant", "content": "x", "reasoning": "\0"}]}),
        None,
    ),
    "NUL in arguments": (call(arguments='{"a": "\0"}'), None),
    "10,000 messages": (json.dumps({"messages": [user("x")] * 10_000}), "messages"),
    "prompt beyond the window": (saying("word " * 50_000), "messages"),
    "max_tokens 0": (body(max_tokens=0), "max_tokens"),
    "max_tokens -1": (body(max_tokens=-1), "max_tokens"),
    "max_tokens 1e12": (body(max_tokens=10**12), "max_tokens"),
    "max_tokens 1e12 as a float": (with_raw("max_tokens", "1e12"), "max_tokens"),
    "max_tokens 2^63": (body(max_tokens=2**63), "max_tokens"),
    "max_tokens 2^100": (body(max_tokens=2**100), "max_tokens"),
    "max_tokens 1.5": (body(max_tokens=1.5), "max_tokens"),
    "max_tokens true": (body(max_tokens=True), "max_tokens"),
    "max_tokens a text": (body(max_tokens="7"), "max_tokens"),
    "max_tokens a list": (body(max_tokens=[7]), "max_tokens"),
    "max_completion_tokens 0": (body(max_completion_tokens=0), None),
    "max_completion_tokens -1": (body(max_completion_tokens=-1), None),
    "temperature -1": (body(temperature=-1), "temperature"),
    "temperature 2.01": (body(temperature=2.01), "temperature"),
    "temperature 1e308": (body(temperature=1e308), "temperature"),
    "temperature a text": (body(temperature="NaN"), "temperature"),
    "temperature true": (body(temperature=True), "temperature"),
    "top_p 0": (body(top_p=0), "top_p"),
    "top_p 1.1": (body(top_p=1.1), "top_p"),
    "top_k a float": (body(top_k=1.5), "top_k"),
    "min_p 2": (body(min_p=2), "min_p"),
    "repetition_penalty 0": (body(repetition_penalty=0), "repetition_penalty"),
    "presence_penalty 3": (body(presence_penalty=3), "presence_penalty"),
    "frequency_penalty -3": (body(frequency_penalty=-3), "frequency_penalty"),
    "seed 2^63": (body(seed=2**63), "seed"),
    "seed -2^63-1": (body(seed=-(2**63) - 1), "seed"),
    "seed a float": (body(seed=1.5), "seed"),
    "n 0": (body(n=0), "n"),
    "n -1": (body(n=-1), "n"),
    "n 1e9": (body(n=10**9), "n"),
    "n true": (body(n=True), "n"),
    "stop a number": (body(stop=7), None),
    "stop empty text": (body(stop=""), "stop"),
    "stop of empty texts": (body(stop=["a", ""]), "stop"),
    "stop x 10,000": (body(stop=["a"] * 10_000), "stop"),
    "stop 1 MB": (body(stop="a" * 1_000_000), "stop"),
    "stop of numbers": (body(stop=[1]), None),
    "logit_bias of words": (body(logit_bias={"hello": 1}), "logit_bias"),
    "logit_bias huge": (body(logit_bias={"5": 1e300}), "logit_bias"),
    "logit_bias with a huge key": (body(logit_bias={"9" * 100_000: 1}), "logit_bias"),
    "logit_bias huge key, wrong value": (body(logit_bias={"k" * 100_000: "x"}), None),
    "logit_bias of 10,000": (body(logit_bias={str(i): 1 for i in range(10_000)}), "logit_bias"),
    "logit_bias beyond any vocabulary": (body(logit_bias={"1000000000000": 1}), "logit_bias"),
    "logprobs a number": (body(logprobs=1), "logprobs"),
    "top_logprobs alone": (body(top_logprobs=3), "top_logprobs"),
    "top_logprobs 21": (body(logprobs=True, top_logprobs=21), "top_logprobs"),
    "stream a text": (body(stream="true"), "stream"),
    "stream a number": (body(stream=1), "stream"),
    "stream_options a text": (body(stream=True, stream_options="usage"), "stream_options"),
    "model a number": (body(model=7), "model"),
    "model huge": (body(model="m" * 100_000), "model"),
    "response_format json_object": (body(response_format={"type": "json_object"}), "response_format"),
    "response_format schema loop": (
        body(response_format={"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}),
        "response_format",
    ),
    "response_format grammar bomb": (body(response_format={"type": "grammar", "grammar": "(a+)+$"}), "response_format"),
    "response_format huge type": (body(response_format={"type": "t" * 100_000}), "response_format"),
    "tools a text": (body(tools="f"), "tools"),
    "tool without function": (body(tools=[{"type": "function"}]), "tools.0.function"),
    "tool of unknown type": (body(tools=[{"type": "web_search"}]), "tools.0.type"),
    "tool without name": (tool(name=""), "tools.0.function.name"),
    "tool with a huge name": (tool(name="n" * 100_000), "tools.0.function.name"),
    "tool parameters a list": (tool(parameters=[]), "tools.0.function.parameters"),
    "tool schema nested 1,000 deep": (
        with_raw(
            "tools", '[{"type": "function", "function": {"name": "f", "parameters": {"a": ' + nested(1000) + "}}}]"
        ),
        "tools",
    ),
    "tool_choice unknown": (body(tool_choice="sometimes"), None),
    "tool_choice required without tools": (body(tool_choice="required"), "tool_choice"),
    "tool_choice names no tool of ours": (
        body(
            tools=[{"type": "function", "function": {"name": "f"}}],
            tool_choice={"type": "function", "function": {"name": "g" * 100_000}},
        ),
        None,
    ),
    "tool_calls a text": (json.dumps({"messages": [user("hi"), {"role": "assistant", "tool_calls": "f"}]}), None),
    "tool call arguments an object": (call(arguments={"a": 1}), None),
    "tool call without name": (call(name=""), None),
    "session_id a number": (body(session_id=7), "session_id"),
    "session_id with a newline": (body(session_id="a\nb"), "session_id"),
    "session_id huge": (body(session_id="s" * 100_000), "session_id"),
    "session_id not ASCII": (body(session_id="sitzung-ü"), "session_id"),
    "turn_type unknown": (body(turn_type="middle"), "turn_type"),
    "turn_type huge": (body(turn_type="t" * 100_000), "turn_type"),
    "turn_type a number": (body(turn_type=1), "turn_type"),
    "turn_type nested": (with_raw("turn_type", nested(1000)), None),
    "metadata nested 1,000 deep": (with_raw("metadata", nested(1000)), None),
}

ODD_BUT_FINE: dict[str, str] = {
    "unknown fields": body(unheard_of={"a": [None, 1.5]}, store=False, service_tier="auto"),
    "duplicate keys: the last counts": '{"messages": [], "messages": [{"role": "user", "content": "hi"}]}',
    "content null": json.dumps({"messages": [user("hi"), {"role": "assistant", "content": None}, user("hi")]}),
    "content empty": saying(""),
    "parts": saying([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    "no parts": saying([]),
    "unknown message keys": saying("hi", provider_specific_fields={"refusal": None}, cache_control={"type": "x"}),
    "two users in a row": json.dumps({"messages": [user("a"), user("b")]}),
    "assistant first": json.dumps({"messages": [{"role": "assistant", "content": "a"}]}),
    "system alone": json.dumps({"messages": [{"role": "system", "content": "a"}]}),
    "tool result without a call": json.dumps({"messages": [{"role": "tool", "tool_call_id": "x", "content": "a"}]}),
    "call without a result": call(),
    "call id used twice": json.dumps(
        {
            "messages": [
                user("hi"),
                *(
                    [
                        {
                            "role": "assistant",
                            "tool_calls": [
                                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                            ],
                        },
                        {"role": "tool", "tool_call_id": "c", "content": "r"},
                    ]
                    * 2
                ),
            ]
        }
    ),
    "arguments that are no JSON": call(arguments="{broken"),
    "arguments nested 900 deep": call(arguments=nested(900)),
    "arguments nested 2,000 deep": call(arguments=nested(2000)),
    "arguments with 1e999": call(arguments='{"a": 1e999, "b": NaN}'),
    "tool name like a path": tool(name="/../../etc/passwd"),
    "tool schema with a pattern bomb": tool(parameters={"type": "string", "pattern": "(a+)+$"}),
    "top_k -1": body(top_k=-1),
    "seed -2^63": body(seed=-(2**63)),
    "seed 2^63-1 with n": body(seed=2**63 - 1, n=2),
    "temperature 0": body(temperature=0),
    "max_tokens at its limit": body(max_tokens=1_000_000),
    "all optional fields null": body(
        **dict.fromkeys(
            ("tools", "tool_choice", "max_tokens", "temperature", "stop", "n", "stream", "logprobs", "seed", "top_p")
        )
    ),
    "odd unicode": saying("\u202e\ufeff\ufffe\U0010ffff e\u0301 🏳️‍🌈 \u2028"),
    "20,000 empty lines": saying("\n" * 20_000 + "x"),
    "20,000 blanks": saying(" " * 20_000 + "x"),
    "a template": saying("{{ ''.__class__.__mro__ }} {% for x in y %}"),
    "runtime line with a control character": saying("Runtime: agent=main | session=a\x01b | sessionId=c\x7fd\nhi"),
    "runtime line not ASCII": saying("Runtime: agent=main | session=é\u2028\nhi"),
    "runtime line without end": saying("Runtime: agent=main | session=" + "x" * 5000),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json(client: httpx.Client, name: str) -> None:
    assert assert_error(client.post(CHAT, content=NOT_JSON[name]), 400)["code"] == "invalid_json"
    assert_error(client.post("/v1/feedback", content=NOT_JSON[name]), 400)


@pytest.mark.parametrize("name", NOT_AN_OBJECT)
def test_what_is_not_an_object(client: httpx.Client, name: str) -> None:
    assert_error(client.post(CHAT, content=NOT_AN_OBJECT[name]), 400)
    assert_error(client.post("/v1/feedback", content=NOT_AN_OBJECT[name]), 400)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(client: httpx.Client, name: str) -> None:
    content, param = WRONG[name]
    error = assert_error(client.post(CHAT, content=content), 400)
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("name", ODD_BUT_FINE)
def test_what_is_odd_but_fine(client: httpx.Client, name: str) -> None:
    response = client.post(CHAT, content=ODD_BUT_FINE[name])
    assert text_of(response)
    turns = response.headers["X-OpenClaw-RL-Turn"]
    assert turns.isascii()
    assert turns.isprintable()
    assert len(turns) < 1024


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Session-Id", "a b"),
        ("X-Session-Id", "s" * 201),
        ("X-Session-Id", b"\xff\xfe"),
        ("X-Session-Id", "sitzung-ü".encode()),
        ("X-Turn-Type", "middle"),
        ("X-Turn-Type", b"\xff"),
    ],
)
def test_wrong_session_headers(client: httpx.Client, name: str, value: str | bytes) -> None:
    shown = value if isinstance(value, bytes) else value.encode()
    assert_error(client.post(CHAT, content=body(), headers={name.encode(): shown}), 400)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"turn_id": 7, "score": 1}',
        '{"turn_id": "s.0"}',
        '{"turn_id": "s.0", "text": ""}',
        '{"turn_id": "s.0", "score": 2}',
        '{"turn_id": "s.0", "score": true}',
        '{"turn_id": "s.0", "score": 0.5}',
        '{"turn_id": "s.0", "score": "1"}',
        '{"turn_id": "s.0", "rating": "meh"}',
        '{"turn_id": "s.0", "rating": ' + nested(1000) + "}",
        '{"turn_id": "s.0", "score": 1, "text": "a\\u0000b"}',
        '{"turn_id": "s.0", "score": 1, "unknown": 1}',
        '{"turn_id": "s", "score": 1}',
        '{"turn_id": "", "score": 1}',
        '{"turn_id": ".0", "score": 1}',
        '{"turn_id": "s.-1", "score": 1}',
        '{"turn_id": "s.٣", "score": 1}',
        '{"turn_id": "s.0x1", "score": 1}',
        '{"turn_id": "' + "s" * 100_000 + '.0", "score": 1}',
        '{"turn_id": "s.0", "score": 1, "text": "' + "t" * 100_000 + '"}',
    ],
)
def test_wrong_feedback(client: httpx.Client, content: str) -> None:
    assert_error(client.post("/v1/feedback", content=content.encode()), 400)


@pytest.mark.parametrize("name", ["s.0", "nobody.99999999999999999999999", "a\\u0000b.1", "' OR 1=1 --.0", "../key.0"])
def test_feedback_on_a_turn_that_is_not_there(client: httpx.Client, name: str) -> None:
    content = '{"turn_id": "' + name + '", "score": 1}'
    assert_error(client.post("/v1/feedback", content=content), 400, 404)


@pytest.mark.parametrize(
    "name",
    [
        "unknown",
        "%00",
        "%ff",
        "%ed%a0%80",
        "a%2f..%2f..%2fkey",
        "..%2f..%2fetc%2fpasswd",
        "x" * 5000,
        "{}",
        "%",
        "a@b@c",
    ],
)
def test_models_that_are_not_there(client: httpx.Client, name: str) -> None:
    assert_error(client.get(f"/v1/models/{name}"), 404)


def test_body_beyond_the_limit_is_a_413(client: httpx.Client) -> None:
    assert_error(client.post(CHAT, content=saying("x" * MAX_BODY)), 413)
    assert_error(client.post("/v1/feedback", content=b"x" * (MAX_BODY + 1)), 413)


def test_bomb_is_a_413(client: httpx.Client) -> None:
    bomb = gzip.compress(b" " * (16 * MAX_BODY))
    assert len(bomb) < MAX_BODY // 10
    assert_error(client.post(CHAT, content=bomb, headers={"Content-Encoding": "gzip"}), 413)


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_body(client: httpx.Client, encoding: str, compress: Any) -> None:
    whole = compress(body().encode())
    headers = {"Content-Encoding": encoding}
    assert text_of(client.post(CHAT, content=whole, headers=headers)) == "You said: hi"
    assert_error(client.post(CHAT, content=body(), headers=headers), 400)
    assert_error(client.post(CHAT, content=whole[: len(whole) // 2], headers=headers), 400)


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "nonsense"])
def test_compression_that_we_do_not_read(client: httpx.Client, encoding: str) -> None:
    compressed = b"\x28\xb5\x2f\xfd" + bytes(range(64))
    assert_error(client.post(CHAT, content=compressed, headers={"Content-Encoding": encoding}), 400, 415)


def test_unknown_expectation(client: httpx.Client) -> None:
    assert_error(client.post(CHAT, content=body(), headers={"Expect": "miracles"}), 400, 417)

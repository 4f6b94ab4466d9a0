"""Chat Completions bodies, good and bad."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.dialects.chat.request import ChatRequest, parse
from openclaw_rl.gateway.api.dialects.spoken import Limits
from openclaw_rl.types import Message, Tool

LIMITS = Limits(
    max_values=10_000,
    max_tools=64,
    max_messages=100,
    max_nesting=8,
    max_choices=4,
    max_tokens=1000,
    default_max_tokens=None,
    default_temperature=0.7,
)
HI = [{"role": "user", "content": "hi"}]


def read(**body: Any) -> ChatRequest:
    return parse(orjson.dumps({"messages": HI, **body}), LIMITS, "tiny")


def refused(raw: bytes) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        parse(raw, LIMITS, "tiny")
    assert 400 <= refusal.value.status < 500
    return refusal.value


def test_a_whole_request() -> None:
    chat = read(
        model="any",
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            {"role": "user", "content": "hi", "unknown": {"x": 1}},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ],
        tools=[{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}],
        tool_choice={"type": "function", "function": {"name": "run"}},
        parallel_tool_calls=False,
        max_completion_tokens=7,
        max_tokens=9,
        temperature=0,
        top_k=-1,
        stop="END",
        seed=3,
        n=2,
        logit_bias={"5": -100},
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=2,
        response_format={"type": "text"},
        user="me",
        metadata={"a": 1},
        reasoning_effort="low",
    )
    request = chat.request
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[0] == Message(role="system", content="Be\nbrief.")
    assert (request.messages[2].reasoning, request.messages[2].tool_calls[0].name) == ("hm", "run")
    assert request.tools == (Tool(name="run", parameters={"type": "object"}),)
    assert (request.tool_choice, request.forced_tool, request.parallel_tool_calls) == ("required", "run", False)
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k, sampling.seed) == (7, 0, 0, 3)
    assert (sampling.logit_bias, sampling.top_logprobs) == ({5: -100.0}, 2)
    assert (request.stop, request.num_choices, request.model) == (("END",), 2, "any")
    assert (chat.stream, chat.include_usage, chat.logprobs) == (True, True, True)


def test_what_is_not_said_gets_the_defaults() -> None:
    chat = read()
    assert (chat.request.sampling.temperature, chat.request.sampling.max_tokens) == (0.7, 1000)
    assert not chat.stream
    assert not chat.include_usage


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", []),
        ("messages", "hi"),
        ("messages", [{"role": "wizard", "content": "hi"}]),
        ("messages", [{"content": "hi"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "user", "content": [{"type": "text", "text": 5}]}]),
        ("messages", [{"role": "user", "content": [{"type": "hologram"}]}]),
        ("messages", [{"role": "user", "content": "a\x00b"}]),
        ("messages", HI * 101),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 10**12),
        ("max_tokens", 1e12),
        ("max_tokens", True),
        ("max_completion_tokens", 0),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_logprobs", 21),
        ("top_logprobs", 3),
        ("n", 0),
        ("n", 5),
        ("n", 10**9),
        ("stop", [""]),
        ("stop", ["x"] * 17),
        ("seed", 1.5),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": 101}),
        ("stream", "yes"),
        ("tools", [{"type": "function", "function": {}}]),
        ("tools", [{"type": "magic", "function": {"name": "x"}}]),
        ("tool_choice", "required"),
        ("tool_choice", "sometimes"),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("response_format", {"type": "json_object"}),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    error = refused(orjson.dumps({"messages": HI, field: value}))
    assert field.split("_")[0] in f"{error} {error.param}"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"hi"',
        b"null",
        b"\xff\xfe",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "hi"}], "seed": ' + b"9" * 5000 + b"}",
    ],
    ids=str,
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    refused(raw)


def test_deep_tools_are_refused() -> None:
    deep: Any = {}
    for _ in range(20):
        deep = {"properties": deep}
    error = refused(
        orjson.dumps({"messages": HI, "tools": [{"type": "function", "function": {"name": "f", "parameters": deep}}]})
    )
    assert error.param == "tools"


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_media_for_a_text_model_is_refused_by_its_name(kind: str) -> None:
    error = refused(orjson.dumps({"messages": [{"role": "user", "content": [{"type": kind, kind: {}}]}]}))
    assert "tiny" in str(error)


def test_a_tool_choice_that_is_not_offered_is_refused() -> None:
    tools = [{"type": "function", "function": {"name": "run"}}]
    choice = {"type": "function", "function": {"name": "walk"}}
    assert "walk" in str(refused(orjson.dumps({"messages": HI, "tools": tools, "tool_choice": choice})))

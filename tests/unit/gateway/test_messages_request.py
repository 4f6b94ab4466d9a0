"""Anthropic Messages bodies, good and bad."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.dialects.messages import MESSAGES
from openclaw_rl.gateway.api.dialects.messages.request import MessagesRequest, parse, parse_count
from openclaw_rl.gateway.api.dialects.spoken import Limits
from openclaw_rl.types import Message, Tool, ToolCall

LIMITS = Limits(
    max_values=10_000,
    max_tools=64,
    max_messages=100,
    max_nesting=8,
    max_choices=4,
    max_tokens=1000,
    default_max_tokens=50,
    default_temperature=0.7,
)
HI = [{"role": "user", "content": "hi"}]
RUN = {"name": "run", "description": "runs it", "input_schema": {"type": "object"}}


def read(**body: Any) -> MessagesRequest:
    return parse(orjson.dumps({"messages": HI, "max_tokens": 10, **body}), LIMITS, "tiny")


def said(*messages: dict[str, Any], **body: Any) -> tuple[Message, ...]:
    return read(messages=list(messages), **body).request.messages


def refused(raw: bytes) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        parse(raw, LIMITS, "tiny")
    assert 400 <= refusal.value.status < 500
    return refusal.value


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def bot(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def test_a_whole_request() -> None:
    spoken = read(
        model="any",
        system=[
            text("x-anthropic-billing-header: version=1; hash=ab12;"),
            text("Be", cache_control={"type": "ephemeral"}),
            text("brief."),
        ],
        messages=[
            user(text("<note>a rule</note>"), text("hi", cache_control={"type": "ephemeral", "ttl": "1h"})),
            bot(
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "???"},
                text("Wait."),
                {"type": "tool_use", "id": "c1", "name": "run", "input": {"b": 1, "a": ["ö"]}},
                {"type": "tool_use", "id": "c2", "name": "run", "input": {}},
            ),
            user(
                text("and now?"),
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("one"), text("two")]},
                {"type": "tool_result", "tool_use_id": "c2", "content": "three", "is_error": True},
            ),
            {"role": "system", "content": "It is late."},
        ],
        tools=[RUN, {"type": "web_search_20250305", "name": "web_search"}, {**RUN, "type": "custom", "name": "walk"}],
        tool_choice={"type": "tool", "name": "run", "disable_parallel_tool_use": True},
        max_tokens=7,
        temperature=1,
        top_p=0.9,
        top_k=40,
        stop_sequences=["END"],
        stream=True,
        thinking={"type": "enabled", "budget_tokens": 1024},
        metadata={"user_id": "someone"},
        output_config={"effort": "high"},
        context_management={"edits": []},
        service_tier="auto",
        unheard_of=[1],
    )
    request = spoken.request
    assert request.messages == (
        Message(role="system", content="Be\nbrief."),
        Message(role="user", content="<note>a rule</note>\nhi"),
        Message(
            role="assistant",
            content="Wait.",
            reasoning="hm",
            tool_calls=(
                ToolCall(id="c1", name="run", arguments='{"b":1,"a":["ö"]}'),
                ToolCall(id="c2", name="run", arguments="{}"),
            ),
        ),
        Message(role="tool", content="one\ntwo", tool_call_id="c1"),
        Message(role="tool", content="three", tool_call_id="c2"),
        Message(role="user", content="and now?"),
        Message(role="system", content="It is late."),
    )
    run = Tool(name="run", description="runs it", parameters={"type": "object"})
    assert request.tools == (run, Tool(name="walk", description="runs it", parameters={"type": "object"}))
    assert (request.tool_choice, request.forced_tool, request.parallel_tool_calls) == ("required", "run", False)
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (7, 1, 0.9, 40)
    assert (request.stop, request.num_choices, request.model) == (("END",), 1, "any")
    assert spoken.stream
    assert spoken.body["metadata"] == {"user_id": "someone"}


def test_what_is_not_said_gets_the_defaults() -> None:
    spoken = read()
    assert spoken.request.messages == (Message(role="user", content="hi"),)
    assert (spoken.request.sampling.temperature, spoken.request.tool_choice) == (0.7, "auto")
    assert spoken.request.parallel_tool_calls
    assert not spoken.stream


def test_a_string_is_one_block_of_text() -> None:
    as_string = said({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}, system="Be kind.")
    assert as_string == said(user(text("hi")), bot(text("yes")), system=[text("Be kind.")])


def test_billing_lines_and_empty_blocks_leave_nothing_behind() -> None:
    billing = text("x-anthropic-billing-header: hash=1")
    silent = {"role": "system", "content": [billing]}
    assert said(silent, *HI, system=[billing, text("")]) == (Message(role="user", content="hi"),)
    assert said(*HI, system="") == (Message(role="user", content="hi"),)
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    assert said(user(result, text(""))) == (Message(role="tool", content="done", tool_call_id="c1"),)
    assert said(user(text(""))) == (Message(role="user"),)
    assert said(user(), bot(), *HI)[:2] == (Message(role="user"), Message(role="assistant"))


def test_texts_of_one_answer_are_parts_of_one_text() -> None:
    """What stands before and after a call was sampled as one text, and is stored as one."""
    call = {"type": "tool_use", "id": "c1", "name": "run", "input": {}}
    (_, answer) = said(*HI, bot(text("Before."), call, text("After.")))
    assert answer.content == "Before.After."


@pytest.mark.parametrize(
    "record",
    [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]},
        {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": {"tool_references": []}},
        {"type": "mcp_tool_use", "id": "m1", "name": "x", "server_name": "y", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [text("x")]},
    ],
)
def test_what_a_tool_of_anthropic_did_is_nothing_here(record: dict[str, Any]) -> None:
    assert said(*HI, bot(text("A"), record, text("B")))[1] == Message(role="assistant", content="AB")
    assert said(user(record, text("hi"))) == (Message(role="user", content="hi"),)


@pytest.mark.parametrize("kind", ["my_tool_use", "result", "", None, ["server_tool_use"], {"a": "_tool_result"}])
def test_an_unknown_block_is_refused(kind: Any) -> None:
    error = refused(orjson.dumps({"max_tokens": 10, "messages": [*HI, bot({"type": kind, "id": "1"})]}))
    assert error.param == "messages.1.content.0.type"


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({}, ""),
        ({"content": None}, ""),
        ({"content": []}, ""),
        ({"is_error": True}, "Error"),
        ({"content": "", "is_error": True}, "Error"),
        ({"content": "exit 1", "is_error": True}, "exit 1"),
        ({"content": [text("exit 1")], "is_error": False}, "exit 1"),
        ({"content": [{"type": "tool_reference", "tool_name": "run"}]}, ""),
        ({"content": [{"type": "tool_reference", "tool_name": "run"}, text("found")]}, "found"),
    ],
)
def test_tool_results(result: dict[str, Any], content: str) -> None:
    (message,) = said(user({"type": "tool_result", "tool_use_id": "c1", **result}))
    assert message == Message(role="tool", content=content, tool_call_id="c1")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", None, True)),
        ({"type": "auto"}, ("auto", None, True)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", None, False)),
        ({"type": "any"}, ("required", None, True)),
        ({"type": "none"}, ("none", None, True)),
        ({"type": "tool", "name": "run"}, ("required", "run", True)),
    ],
)
def test_tool_choices(choice: Any, expected: object) -> None:
    request = read(tools=[RUN], tool_choice=choice).request
    assert (request.tool_choice, request.forced_tool, request.parallel_tool_calls) == expected


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "messages are text": ({"messages": "hi"}, "messages"),
    "messages are null": ({"messages": None}, "messages"),
    "too many": ({"messages": HI * 101}, "messages"),
    "role": ({"messages": [{"role": "tool", "content": "hi"}]}, "messages.0.role"),
    "no role": ({"messages": [*HI, {"content": "hi"}]}, "messages.1.role"),
    "no content": ({"messages": [{"role": "user"}]}, "messages.0.content"),
    "content is a number": ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    "block is text": ({"messages": [{"role": "user", "content": ["hi"]}]}, "messages.0.content"),
    "text is a number": ({"messages": [user(text("a"), {"type": "text", "text": 5})]}, "messages.0.content.1.text"),
    "unknown block": ({"messages": [user({"type": "hologram"})]}, "messages.0.content.0.type"),
    "block without type": ({"messages": [user({"text": "hi"})]}, "messages.0.content.0.type"),
    "a user's call": (
        {"messages": [user({"type": "tool_use", "id": "c", "name": "run", "input": {}})]},
        "messages.0.content.0.type",
    ),
    "a bot's result": (
        {"messages": [bot({"type": "tool_result", "tool_use_id": "c"})]},
        "messages.0.content.0.type",
    ),
    "call without id": (
        {"messages": [bot({"type": "tool_use", "name": "run", "input": {}})]},
        "messages.0.content.0.id",
    ),
    "call without name": (
        {"messages": [bot({"type": "tool_use", "id": "c", "name": "", "input": {}})]},
        "messages.0.content.0.name",
    ),
    "input is text": (
        {"messages": [bot({"type": "tool_use", "id": "c", "name": "run", "input": "{}"})]},
        "messages.0.content.0.input",
    ),
    "result without id": ({"messages": [user({"type": "tool_result"})]}, "messages.0.content.0.tool_use_id"),
    "result with a number": (
        {"messages": [user({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text"}]})]},
        "messages.0.content.0.content.0.text",
    ),
    "thought is a number": ({"messages": [bot({"type": "thinking", "thinking": 5})]}, "messages.0.content.0.thinking"),
    "NUL": ({"messages": [user(text("a\0b"))]}, "messages.0.content"),
    "NUL in a thought": ({"messages": [bot({"type": "thinking", "thinking": "\0"})]}, "messages.0.content"),
    "NUL in the system prompt": ({"system": "a\0b"}, "system"),
    "NUL in the model": ({"model": "a\0b"}, "model"),
    "NUL in a tool": ({"tools": [{**RUN, "name": "a\0b"}]}, "tools"),
    "system is a number": ({"system": 5}, "system"),
    "system has an image": ({"system": [{"type": "image"}]}, "system.0"),
    "max_tokens missing": ({"max_tokens": None}, "max_tokens"),
    "max_tokens 0": ({"max_tokens": 0}, "max_tokens"),
    "max_tokens beyond": ({"max_tokens": 1001}, "max_tokens"),
    "max_tokens is a float": ({"max_tokens": 1.5}, "max_tokens"),
    "temperature": ({"temperature": 2.1}, "temperature"),
    "top_p": ({"top_p": 0}, "top_p"),
    "top_k": ({"top_k": "many"}, "top_k"),
    "empty stop": ({"stop_sequences": [""]}, "stop_sequences"),
    "too many stops": ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
    "stop is text": ({"stop_sequences": "END"}, "stop_sequences"),
    "stream": ({"stream": "yes"}, "stream"),
    "tool without name": ({"tools": [RUN, {"input_schema": {}}]}, "tools.1.name"),
    "tool without schema": ({"tools": [{"name": "run"}]}, "tools.0.input_schema"),
    "tools are text": ({"tools": "run"}, "tools"),
    "choice": ({"tools": [RUN], "tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
    "choice is text": ({"tools": [RUN], "tool_choice": "auto"}, "tool_choice"),
    "choice of no name": ({"tools": [RUN], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    "choice without tools": ({"tool_choice": {"type": "any"}}, "tool_choice"),
}


@pytest.mark.parametrize(("wrong", "param"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(wrong: dict[str, Any], param: str) -> None:
    error = refused(orjson.dumps({"messages": HI, "max_tokens": 10, **wrong}))
    assert error.param is not None
    # pydantic adds which of several forms it tried
    assert error.param == param or error.param.startswith(f"{param}.")
    body = orjson.loads(MESSAGES.error_body(str(error), status=error.status, param=error.param, code=error.code))
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert param in body["error"]["message"]


def test_max_tokens_is_required_as_it_is_there() -> None:
    assert refused(orjson.dumps({"messages": HI})).param == "max_tokens"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": ' + b"[" * 10_000], ids=str)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    refused(raw)


@pytest.mark.parametrize("kind", ["image", "document"])
@pytest.mark.parametrize("is_result", [False, True])
def test_media_for_a_text_model_is_refused_by_its_name(kind: str, is_result: bool) -> None:
    media = {"type": kind, "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    block = {"type": "tool_result", "tool_use_id": "c", "content": [text("see"), media]} if is_result else media
    error = refused(orjson.dumps({"max_tokens": 10, "messages": [user(text("look"), block)]}))
    assert error.code == "unsupported_content"
    assert error.param == ("messages.0.content.1.content.1" if is_result else "messages.0.content.1")
    assert "tiny" in str(error)
    assert kind in str(error)


def test_a_tool_that_nobody_here_has_cannot_be_forced() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    wrong = {"tools": [RUN, search], "tool_choice": {"type": "tool", "name": "web_search"}}
    assert "web_search" in str(refused(orjson.dumps({"messages": HI, "max_tokens": 10, **wrong})))


def test_a_question_for_the_length_is_the_same_prompt() -> None:
    body = {"model": "any", "system": "Be kind.", "messages": HI, "tools": [RUN], "tool_choice": {"type": "any"}}
    asked = parse_count(orjson.dumps(body), LIMITS, "tiny")
    real = read(**body).request
    assert (asked.messages, asked.tools, asked.tool_choice) == (real.messages, real.tools, real.tool_choice)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
    ],
)
def test_errors_have_anthropics_types(status: int, kind: str) -> None:
    body = orjson.loads(MESSAGES.error_body("x" * 5000, status=status, param="messages.0", code="c"))
    assert body["error"]["type"] == kind
    assert body["error"]["message"].startswith("messages.0: xxx")
    assert len(body["error"]["message"]) < 1100

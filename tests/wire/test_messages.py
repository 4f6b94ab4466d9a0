"""The real `anthropic` package against the running server, and requests as Claude Code sends them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import numpy
import pytest
from anthropic import Anthropic
from anthropic.types import Message, ToolParam
from safetensors.numpy import save_file

from openclaw_rl.types import Skip, Turn
from tests.faults.processes import worker
from tests.server import Server
from tests.unit.render.tiny import HERMES, byte_level, write_folder
from tests.wire.asking import connect, eventually, read_to_end, reader, replies, stored, turn_of

WINDOW = 4096
MAX_BODY = 200_000
MODEL = "claude-of-my-own"
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "clock", "arguments": {"zone": "CET"}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "weather", "arguments": {"city": Malmö}}\n</tool_call>'
COUNT = "one two three four five six seven eight nine ten"
THOUGHT = "<think>\nthe user asks\nagain\n</think>\n\n"

TOOLS: list[ToolParam] = [
    {
        "name": name,
        "description": f"the {name}",
        "input_schema": {"type": "object", "properties": {key: {"type": "string"}}},
    }
    for name, key in (("weather", "city"), ("clock", "zone"))
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    rules = replies(
        ("tool_response", "It is sunny."),
        ("^both", f"Looking.\n{WEATHER}\n{CLOCK}\nThat is all."),
        ("^broken", BROKEN),
        ("weather please", WEATHER),
        ("^time", CLOCK),
        ("^count", COUNT),
    )
    settings = (f"engine.context_window={WINDOW}", f"gateway.max_body_bytes={MAX_BODY}", rules)
    with Server(tmp_path_factory.mktemp("messages") / "data", *settings) as running:
        yield running


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model of a family that thinks; it consists of its tokenizer."""
    tokenizer = byte_level()
    folder = write_folder(
        tmp_path_factory.mktemp("thinker") / "model",
        tokenizer,
        HERMES + "{#- </think> -#}",
        model_type="qwen3",
        architectures=["Qwen3ForCausalLM"],
        max_position_embeddings=WINDOW,
        vocab_size=tokenizer.get_vocab_size(),
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
    )
    save_file({"unused": numpy.zeros(1, dtype=numpy.float32)}, folder / "model.safetensors")
    rules = replies(("tool_response", f"{THOUGHT}sunny"), ("weather", f"{THOUGHT}{WEATHER}"), (".", f"{THOUGHT}yes"))
    with Server(folder.parent / "data", f"model.name={folder}", rules) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Anthropic]:
    with anthropic_client(server) as made:
        yield made


def anthropic_client(server: Server, **options: Any) -> Anthropic:
    """The real client library. It does not retry by itself, so that one call is one request."""
    return Anthropic(base_url=server.url, **{"api_key": server.key, "max_retries": 0, "timeout": 60, **options})


def says(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def ask(client: Anthropic, stream: bool, **request: Any) -> tuple[Message, str]:
    """The answer, however it was delivered, and the name of its turn."""
    options: dict[str, Any] = {"model": MODEL, "max_tokens": 200, **request}
    if stream:
        with client.messages.stream(**options) as events:
            return events.get_final_message(), events.response.headers["X-OpenClaw-RL-Turn"]
    raw = client.messages.with_raw_response.create(**options)
    return raw.parse(), raw.headers["X-OpenClaw-RL-Turn"]


def text_of(answer: Message) -> str:
    return "".join(block.text for block in answer.content if block.type == "text")


def extends(turn: Turn, before: Turn) -> bool:
    """Whether a prompt begins with every id of the turn before, prompt and answer."""
    known = before.prompt_ids + before.completion.token_ids
    return turn.prompt_ids[: len(known)] == known


streamed_or_not = pytest.mark.parametrize("stream", [False, True])


@streamed_or_not
def test_a_message(client: Anthropic, server: Server, stream: bool) -> None:
    answer, turn_id = ask(client, stream, messages=says("hello"), system="Be kind.")
    assert answer.id.startswith("msg_")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", MODEL)
    assert [block.type for block in answer.content] == ["text"]
    assert text_of(answer) == "You said: hello"
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    turn = stored(server, turn_id)
    assert turn.dialect == "messages"
    assert (turn.kind, turn.skip) == ("main", None)
    assert answer.usage.output_tokens == len(turn.completion.token_ids)
    read = answer.usage.cache_read_input_tokens or 0
    assert answer.usage.input_tokens + read == len(turn.prompt_ids)


def test_every_event_is_named_and_in_order(server: Server) -> None:
    request = {"model": MODEL, "max_tokens": 200, "stream": True, "messages": says("both"), "tools": TOOLS}
    headers = {"x-api-key": server.key, "anthropic-version": "2023-06-01", "anthropic-beta": "some-2026-01-01"}
    answer = httpx.post(f"{server.url}/v1/messages?beta=true", json=request, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    events = []
    for lines in (event.split("\n") for event in answer.text.removesuffix("\n\n").split("\n\n")):
        assert len(lines) == 2
        data = json.loads(lines[1].removeprefix("data: "))
        assert lines[0] == f"event: {data['type']}"
        events.append(data)
    names = [event["type"] for event in events]
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    blocks = [list(group) for _, group in itertools.groupby(events[1:-2], lambda event: event["index"])]
    kinds = []
    for number, (start, *deltas, stop) in enumerate(blocks):
        assert start["index"] == number
        assert (start["type"], stop["type"]) == ("content_block_start", "content_block_stop")
        assert {delta["type"] for delta in deltas} == {"content_block_delta"}
        kinds.append((start["content_block"]["type"], deltas[0]["delta"]["type"]))
        assert not start["content_block"].get("text")
        assert not start["content_block"].get("input")
    text, call = ("text", "text_delta"), ("tool_use", "input_json_delta")
    assert kinds == [text, call, call, text]


@streamed_or_not
def test_tools_come_as_calls_and_their_results_go_back(client: Anthropic, server: Server, stream: bool) -> None:
    asked = says("weather please")
    answer, first = ask(client, stream, messages=asked, tools=TOOLS)
    assert answer.stop_reason == "tool_use"
    (call,) = answer.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {"city": "Malmö"})
    assert call.id == stored(server, first).message.tool_calls[0].id
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    history = [*asked, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    answer, second = ask(client, stream, messages=history, tools=TOOLS)
    assert (answer.stop_reason, text_of(answer)) == ("end_turn", "It is sunny.")
    turn, before = stored(server, second), stored(server, first)
    assert (turn.session, turn.parent) == (before.session, before.index)
    assert extends(turn, before)
    state = reader(server).next_state(before.session, before.index)
    assert state is not None
    assert [(m.role, m.content, m.tool_call_id) for m in state.messages] == [("tool", "sunny", call.id)]


@streamed_or_not
def test_calls_between_texts(client: Anthropic, server: Server, stream: bool) -> None:
    """Text may go on after a call; sent back block by block it is still the answer that was given."""
    answer, first = ask(client, stream, messages=says("both of them"), tools=TOOLS)
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert [call.name for call in calls] == ["weather", "clock"]
    assert text_of(answer) == stored(server, first).message.content
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "so"} for call in calls]
    said = {"role": "user", "content": [*results, {"type": "text", "text": "and?"}]}
    history = [*says("both of them"), {"role": "assistant", "content": answer.content}, said]
    _, second = ask(client, stream, messages=history, tools=TOOLS)
    turn, before = stored(server, second), stored(server, first)
    assert (turn.session, turn.parent) == (before.session, before.index)
    state = reader(server).next_state(before.session, before.index)
    assert state is not None
    assert [(m.role, m.content) for m in state.messages] == [("tool", "so"), ("tool", "so"), ("user", "and?")]


@streamed_or_not
def test_arguments_that_are_no_object(client: Anthropic, server: Server, stream: bool) -> None:
    answer, first = ask(client, stream, messages=says("broken"), tools=TOOLS)
    assert answer.stop_reason == "tool_use"
    (call,) = answer.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {})
    assert stored(server, first).message.tool_calls[0].arguments == '{"city": Malmö}'
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "city is missing", "is_error": True}
    history = [*says("broken"), {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    _, second = ask(client, stream, messages=history, tools=TOOLS)
    turn, before = stored(server, second), stored(server, first)
    assert (turn.session, turn.parent) == (before.session, before.index)
    assert extends(turn, before)


@streamed_or_not
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "clock"}])
def test_tool_choice_forces_a_call(client: Anthropic, stream: bool, choice: Any) -> None:
    answer, _ = ask(client, stream, messages=says("time"), tools=TOOLS, tool_choice=choice)
    (call,) = answer.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("clock", {"zone": "CET"})


def test_tool_choice_limits_calls(client: Anthropic, server: Server) -> None:
    one, _ = ask(
        client,
        False,
        messages=says("both"),
        tools=TOOLS,
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    )
    assert [block.type for block in one.content] == ["text", "tool_use"]
    _, turn_id = ask(client, False, messages=says("both"), tools=TOOLS, tool_choice={"type": "none"})
    assert stored(server, turn_id).tools == ()


@streamed_or_not
def test_stop_sequences_say_which(client: Anthropic, stream: bool) -> None:
    answer, _ = ask(client, stream, messages=says("count"), stop_sequences=["zzz", " seven", " four"])
    assert text_of(answer) == "one two three"
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", " four")
    answer, _ = ask(client, stream, messages=says("count"), stop_sequences=["zzz"])
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)


@streamed_or_not
def test_max_tokens(client: Anthropic, stream: bool) -> None:
    answer, _ = ask(client, stream, messages=says("count"), max_tokens=3)
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 3
    assert COUNT.startswith(text_of(answer))


@streamed_or_not
def test_a_thought_comes_and_goes_back(thinker: Server, stream: bool) -> None:
    with anthropic_client(thinker) as client:
        asked = says("weather please")
        answer, first = ask(client, stream, messages=asked, tools=TOOLS)
        thought, call = answer.content
        assert thought.type == "thinking"
        assert thought.thinking == "the user asks\nagain"
        assert thought.signature
        assert call.type == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        history = [*asked, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        answer, second = ask(client, stream, messages=history, tools=TOOLS)
        assert [block.type for block in answer.content] == ["thinking", "text"]
    turn, before = stored(thinker, second), stored(thinker, first)
    assert turn.messages[1].reasoning == before.message.reasoning == "the user asks\nagain"
    assert (turn.session, turn.parent) == (before.session, before.index)
    assert extends(turn, before)


def test_signatures_are_always_the_same(thinker: Server) -> None:
    with anthropic_client(thinker) as client:
        answers = [ask(client, stream, messages=says("again"))[0] for stream in (True, False)]
    signatures = [block.signature for answer in answers for block in answer.content if block.type == "thinking"]
    assert len(signatures) == 2
    assert len(set(signatures)) == 1


def test_count_tokens_counts_what_would_be_rendered_and_keeps_nothing(client: Anthropic, server: Server) -> None:
    request: dict[str, Any] = {
        "messages": [*says("hello, how long is this?"), {"role": "assistant", "content": "Long."}, *says("And now?")],
        "system": [{"type": "text", "text": "Be kind."}],
        "tools": TOOLS,
    }
    before = len(reader(server).sessions())
    counted = client.messages.count_tokens(model=MODEL, **request)
    assert client.beta.messages.count_tokens(model=MODEL, **request).input_tokens == counted.input_tokens
    assert len(reader(server).sessions()) == before
    answer, turn_id = ask(client, False, **request)
    assert counted.input_tokens == answer.usage.input_tokens == len(stored(server, turn_id).prompt_ids)
    without = client.messages.count_tokens(model=MODEL, messages=request["messages"], system="Be kind.")
    assert without.input_tokens < counted.input_tokens
    forced = client.messages.count_tokens(model=MODEL, tool_choice={"type": "any"}, **request)
    assert forced.input_tokens > counted.input_tokens
    huge = client.messages.count_tokens(model=MODEL, messages=says("word " * WINDOW))
    assert huge.input_tokens > WINDOW


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_hello(server: Server, method: str) -> None:
    assert httpx.request(method, f"{server.url}/api/hello").status_code == 200


@streamed_or_not
def test_a_prompt_beyond_the_window(client: Anthropic, stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError, match=rf"prompt is too long: \d+ tokens > {WINDOW} maximum") as error:
        ask(client, stream, messages=says("word " * WINDOW))
    assert error.value.type == "invalid_request_error"


def test_mistakes_are_typed_and_named(client: Anthropic, server: Server) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.0: .*'image'"):
        ask(client, False, messages=[{"role": "user", "content": [image]}])
    with pytest.raises(anthropic.NotFoundError) as missing:
        ask(client, True, model="anything@v7", messages=says("hello"))
    assert missing.value.type == "not_found_error"
    with pytest.raises(anthropic.RequestTooLargeError) as large:
        ask(client, False, messages=says("x" * MAX_BODY))
    assert "'request_too_large'" in str(large.value)
    for options in ({"api_key": "ocrl-wrong"}, {"api_key": None, "auth_token": "ocrl-wrong"}):
        with anthropic_client(server, **options) as stranger, pytest.raises(anthropic.AuthenticationError) as refused:
            ask(stranger, False, messages=says("hello"))
        assert refused.value.type == "authentication_error"
        assert refused.value.body == {
            "type": "error",
            "error": {"type": "authentication_error", "message": "that API key is not known here"},
        }


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_both_ways_to_show_a_key(server: Server, path: str) -> None:
    body = {"max_tokens": 5, "messages": says("hello")}
    statuses = [
        httpx.post(f"{server.url}{path}", json=body, headers=headers).status_code
        for headers in ({"x-api-key": server.key}, {"Authorization": f"Bearer {server.key}"}, {})
    ]
    assert statuses == [200, 200, 401]


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("POST", "/v1/messages/batches", 404, "not_found_error"),
        ("POST", "/v1/messages", 401, "authentication_error"),
        ("POST", "/v1/messages/count_tokens", 401, "authentication_error"),
    ],
)
def test_errors_under_this_path_have_one_shape(server: Server, method: str, path: str, status: int, kind: str) -> None:
    answer = httpx.request(method, f"{server.url}{path}")
    assert answer.status_code == status
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert set(body["error"]) == {"type", "message"}


def test_keep_alives_are_events_of_their_own(tmp_path: Path) -> None:
    settings = ("engine.scripted.tokens_per_s=4", "gateway.keepalive_s=0.05")
    request = {"model": MODEL, "max_tokens": 3, "stream": True, "messages": says("hello")}
    with Server(tmp_path / "data", *settings) as server:
        answer = httpx.post(f"{server.url}/v1/messages", json=request, headers=server.headers, timeout=60)
        events = answer.text.removesuffix("\n\n").split("\n\n")
        assert 'event: ping\ndata: {"type":"ping"}' in events
        assert events[0].startswith("event: message_start\n")
        assert not any(line.startswith(":") for line in answer.text.split("\n"))
        with anthropic_client(server) as client:
            assert ask(client, True, messages=says("hello"), max_tokens=3)[0].stop_reason == "max_tokens"


def test_closing_a_stream_keeps_what_there_is(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "engine.scripted.tokens_per_s=20", replies((".", COUNT))) as server:
        headers = {"X-Claude-Code-Session-Id": "hung-up"}
        with anthropic_client(server) as client:
            stream = client.messages.create(
                model=MODEL, max_tokens=50, messages=says("count"), stream=True, extra_headers=headers
            )
            for _ in range(4):
                next(stream)
            stream.close()
        turn = eventually(lambda: reader(server).turn("hung-up", 0))
        assert turn.skip is Skip.ABORTED
        assert COUNT.startswith(turn.message.content)


def test_an_engine_that_stays_away(tmp_path: Path, model: Path) -> None:
    """Mid-stream it is an error event, which the library raises; before, a 503 that it would try again."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    settings = (
        *(f"model.checkpoint_path={folder}", "engine.wait_s=0.3", "engine.backoff_s=0.1"),
        *("engine.scripted.tokens_per_s=10", replies((".", COUNT))),
    )
    with Server(tmp_path / "data", *settings) as server, anthropic_client(server) as client:
        stream = client.messages.create(model=MODEL, max_tokens=50, messages=says("count"), stream=True)
        next(stream)
        (folder / "tokenizer.json").unlink()
        worker(server).kill()
        with pytest.raises(anthropic.APIStatusError) as broken:
            list(stream)
        assert broken.value.type == "api_error"
        with pytest.raises(anthropic.ServiceUnavailableError) as away:
            ask(client, True, messages=says("hello"))
        assert away.value.type == "api_error"
        assert int(away.value.response.headers["Retry-After"]) >= 1


# Sessions


@pytest.mark.parametrize("scope", ["session", "message"])
def test_no_train_holds(client: Anthropic, server: Server, scope: str) -> None:
    _, turn_id = ask(client, True, messages=says(f"not this {scope}"), extra_headers={"X-No-Train": scope})
    assert stored(server, turn_id).skip is Skip.OPTED_OUT


def test_turns_look_like_those_of_chat(client: Anthropic, server: Server) -> None:
    """One conversation in both dialects: the same messages, tools, ids and sampling."""
    tools = [
        {
            "type": "function",
            "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]},
        }
        for t in TOOLS
    ]
    arguments = '{"city":"Malmö","days":[1,2.5]}'
    function = {"name": "weather", "arguments": arguments}
    chat = server.chat(
        [
            {"role": "system", "content": "Be kind."},
            *says("weather please"),
            {"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "c1", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            *says("thanks"),
        ],
        tools=tools,
        max_tokens=30,
        temperature=0.5,
        headers={"X-Session-Id": "in-chat"},
    )
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": json.loads(arguments)}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]}
    _, turn_id = ask(
        client,
        True,
        system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        messages=[
            *says("weather please"),
            {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "thanks"}]},
        ],
        tools=TOOLS,
        max_tokens=30,
        extra_body={"temperature": 0.5},
        extra_headers={"X-Session-Id": "in-messages"},
    )
    one, other = turn_of(server, chat.headers), stored(server, turn_id)
    assert (one.dialect, other.dialect) == ("chat", "messages")
    for field in ("index", "parent", "kind", "model", "messages", "tools", "sampling", "stop", "prompt_ids", "message"):
        assert getattr(one, field) == getattr(other, field), field
    assert one.completion == other.completion
    assert (one.chain, one.skip) == (other.chain, other.skip)


def claude_code(server: Server, billing: int, messages: list[Any], how: dict[str, Any]) -> tuple[Turn, list[Any]]:
    """One request of an agent with Claude Code's habits; its turn, and the blocks of the answer."""
    request = {
        "model": MODEL,
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: v=1; hash={billing:04x};"},
            {"type": "text", "text": "You work in a terminal.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Rules of this folder: none.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": messages,
        "tools": TOOLS,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": how.get("user_id", "")},
    }
    headers = {
        "Authorization": f"Bearer {server.key}",
        "user-agent": "claude-cli/9.9.9 (external, cli)",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "one-2026-01-01,two-2026-01-01",
        "x-stainless-retry-count": "0",
        **how.get("headers", {}),
    }
    answer = httpx.post(f"{server.url}/v1/messages?beta=true", json=request, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return turn_of(server, answer.headers), blocks_of(answer.text)


def blocks_of(events: str) -> list[Any]:
    """The blocks that a client builds of a stream."""
    blocks: list[Any] = []
    parts: list[str] = []
    for line in (line for line in events.split("\n") if line.startswith("data: ")):
        match json.loads(line.removeprefix("data: ")):
            case {"type": "content_block_start", "content_block": block}:
                blocks.append(block)
                parts = []
            case {"delta": {"text": text}}:
                blocks[-1]["text"] += text
            case {"delta": {"partial_json": text}}:
                parts.append(text)
                blocks[-1]["input"] = json.loads("".join(parts))
    return blocks


HOW: dict[str, dict[str, Any]] = {
    "its header": {"headers": {"X-Claude-Code-Session-Id": "0b1d6a52-93a1-4c0e-8d5b-6f3c0a7e1f10"}},
    "its metadata": {"user_id": json.dumps({"device_id": "ab", "session_id": "5f0f7f7a-0c52-4a39-9d3c-0b8f2d3c4e5f"})},
    "its history": {},
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_a_session_as_claude_code_holds_it(server: Server, how: dict[str, Any]) -> None:
    """Cache marks move, contents change their form, the billing line varies, system messages stand in between."""
    name = how.get("user_id", "") + str(how.get("headers", "no name"))
    marked = {"cache_control": {"type": "ephemeral"}}
    reminder = {"type": "text", "text": f"<note>Read the rules first. {len(name)}</note>"}

    asked = {"type": "text", "text": "weather please"}
    first, blocks = claude_code(server, 1, [{"role": "user", "content": [reminder, asked | marked]}], how)
    (call,) = blocks
    assert call["type"] == "tool_use"

    history: list[Any] = [{"role": "user", "content": [reminder, asked]}, {"role": "assistant", "content": [call]}]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}
    second, blocks = claude_code(server, 2, [*history, {"role": "user", "content": [result | marked]}], how)
    assert [block["text"] for block in blocks] == ["It is sunny."]

    as_blocks = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "sunny"}]}
    history += [{"role": "user", "content": [as_blocks]}, {"role": "assistant", "content": blocks}]
    late = {"role": "system", "content": "The folder was changed by somebody else."}
    wrong = {"role": "user", "content": [{"type": "text", "text": "No, I meant tomorrow!"} | marked]}
    third, blocks = claude_code(server, 3, [*history, late, wrong], how)

    history[-1] = {"role": "assistant", "content": "It is sunny."}
    history += [late, {"role": "user", "content": "No, I meant tomorrow!"}, {"role": "assistant", "content": blocks}]
    thanks = [{"type": "text", "text": ""}, {"type": "text", "text": "Thanks."} | marked]
    fourth, _ = claude_code(server, 4, [*history, {"role": "user", "content": thanks}], how)

    turns = [first, second, third, fourth]
    assert {turn.session for turn in turns} == {first.session}
    assert [(turn.index, turn.parent) for turn in turns] == [(0, None), (1, 0), (2, 1), (3, 2)]
    assert all(extends(turn, before) for before, turn in itertools.pairwise(turns))
    assert {(turn.kind, turn.skip) for turn in turns} == {("main", None)}
    session = reader(server).session(first.session)
    assert session is not None
    assert session.client.startswith("claude-cli")
    states = [reader(server).next_state(turn.session, turn.index) for turn in turns]
    told = [[(m.role, m.content.strip()) for m in state.messages] if state else None for state in states]
    assert told == [[("tool", "sunny")], [("user", "No, I meant tomorrow!")], [("user", "Thanks.")], None]


def test_a_name_keeps_sessions_apart(server: Server) -> None:
    """The same words under two names are two conversations."""
    first, _ = claude_code(server, 1, says("count"), {"headers": {"X-Claude-Code-Session-Id": "a" * 36}})
    second, _ = claude_code(server, 1, says("count"), {"headers": {"X-Claude-Code-Session-Id": "b" * 36}})
    assert first.session != second.session


def test_broken_http_is_still_answered(server: Server) -> None:
    """What no library sends: a body that ends too early."""
    with connect(server) as connection:
        head = f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nx-api-key: {server.key}\r\nContent-Length: 50\r\n\r\n"
        connection.sendall(head.encode() + b'{"messages"')
        connection.shutdown(1)
        read_to_end(connection)
    assert httpx.get(f"{server.url}/healthz").status_code == 200

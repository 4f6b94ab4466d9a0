"""The Responses dialect of the running server: the real `openai` package, and requests as Codex sends them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from openclaw_rl.types import Message, Skip, Turn
from tests.server import Server
from tests.wire.asking import (
    Admin,
    assert_error,
    closed,
    eventually,
    openai_client,
    reader,
    replies,
    stored,
)

RESPONSES = "/v1/responses"
WINDOW = 4096
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "clock", "arguments": {"zone": "CET"}}\n</tool_call>'
PATCH = '<tool_call>\n{"name": "patch", "arguments": {"input": "*** begin\\n+\\"hi\\"\\n"}}\n</tool_call>'
ODD_PATCH = '<tool_call>\n{"name": "patch", "arguments": {"file": "a"}}\n</tool_call>'
SPAWN = '<tool_call>\n{"name": "agents::spawn", "arguments": {"task": "count"}}\n</tool_call>'
THOUGHT = "The user greets me.\nI greet back."
COUNT = " ".join(f"word{i}" for i in range(60))

FUNCTIONS: list[Any] = [
    {
        "type": "function",
        "name": name,
        "description": f"the {name}",
        "parameters": {"type": "object", "properties": {key: {"type": "string"}}},
        "strict": False,
    }
    for name, key in (("weather", "city"), ("clock", "zone"))
]
CUSTOM: Any = {"type": "custom", "name": "patch", "description": "Changes a file."}
SPACE: Any = {
    "type": "namespace",
    "name": "agents",
    "description": "other agents",
    "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {}}}],
}
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    rules = replies(
        ("^both", f"Looking.\n{WEATHER}\n{CLOCK}"),
        ("^weather", WEATHER),
        ("^patch it", PATCH),
        ("^patch oddly", ODD_PATCH),
        ("^spawn", SPAWN),
        ("^count", COUNT),
        ("^silence", "\n"),
        ("tool_response", "It is done."),
    )
    # token by token, and still fast
    settings = (f"engine.context_window={WINDOW}", "engine.scripted.tokens_per_s=2000", rules)
    with Server(tmp_path_factory.mktemp("responses") / "data", *settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with openai_client(server) as made:
        yield made


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Server]:
    """The same model with a template that thinks."""
    folder = tmp_path_factory.mktemp("thinker") / "thinker"
    folder.mkdir()
    for file in model.iterdir():
        if file.name in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors"):
            (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    rules = replies(("^hello", f"<think>\n{THOUGHT}\n</think>\n\nHello!"))
    with Server(tmp_path_factory.mktemp("thinking") / "data", f"model.name={folder}", rules) as running:
        yield running


def ask(
    server: Server, given: Any, *, stream: bool = False, headers: dict[str, str] | None = None, **body: Any
) -> tuple[dict[str, Any], Turn]:
    """One request without a client library: the response, checked, and its turn in the store."""
    request = {"model": "any", "input": given, "stream": stream, **body}
    headers = {**server.headers, **(headers or {})}
    answer = httpx.post(f"{server.url}{RESPONSES}", json=request, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    response = streamed(answer.text)[-1]["response"] if stream else answer.json()
    Response.model_validate(response)
    return response, stored(server, answer.headers["X-OpenClaw-RL-Turn"])


def streamed(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each of which must be complete in the eyes of the client library."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def refused(server: Server, *statuses: int, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    headers = headers or server.headers
    answer = httpx.post(f"{server.url}{RESPONSES}", json={"input": "hi", **body}, headers=headers, timeout=60)
    return assert_error(answer, *statuses)


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def assert_extends(turn: Turn, before: Turn) -> None:
    """The ids that were sampled are the ids that the next answer is based on."""
    assert (turn.session, turn.parent) == (before.session, before.index)
    so_far = before.prompt_ids + before.completion.token_ids
    assert turn.prompt_ids[: len(so_far)] == so_far


def reactions(server: Server, session: str) -> dict[int, list[tuple[str, str]]]:
    return {s.index: [(m.role, m.content) for m in s.messages] for s in reader(server).next_states(session)}


def test_a_whole_response(client: OpenAI, server: Server) -> None:
    raw = client.responses.with_raw_response.create(
        model="any-name", input="hello", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5
    )
    turn = stored(server, raw.headers["X-OpenClaw-RL-Turn"])
    answer = raw.parse()
    Response.model_validate(answer.to_dict())
    assert (answer.object, answer.status, answer.model) == ("response", "completed", "any-name")
    assert (answer.output_text, answer.instructions, answer.metadata) == ("You said: hello", "Be brief.", {"a": "b"})
    assert (answer.temperature, answer.tool_choice, answer.tools) == (0.5, "auto", [])
    (message,) = answer.output
    assert message.type == "message"
    assert (message.role, message.status) == ("assistant", "completed")
    assert message.id.startswith("msg_")
    assert answer.usage is not None
    assert answer.usage.input_tokens == len(turn.prompt_ids)
    assert answer.usage.output_tokens == len(turn.completion.token_ids)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert turn.dialect == "responses"
    assert turn.messages == (Message(role="system", content="Be brief."), Message(role="user", content="hello"))


def test_the_events_of_a_text(client: OpenAI, server: Server) -> None:
    with client.responses.with_streaming_response.create(model="m", input="count", stream=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        turn_id = response.headers["X-OpenClaw-RL-Turn"]
        events = streamed("".join(response.iter_text()))
    kinds = [event["type"].removeprefix("response.") for event in events]
    opening = ["created", "in_progress", "output_item.added", "content_part.added"]
    closing = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    deltas = kinds[len(opening) : -len(closing)]
    assert kinds == [*opening, *deltas, *closing]
    assert set(deltas) == {"output_text.delta"}
    assert len(deltas) > 1
    assert "".join(event.get("delta", "") for event in events) == COUNT
    assert all(event["logprobs"] == [] for event in events if event["type"] == "response.output_text.delta")
    assert events[0]["response"]["status"] == events[1]["response"]["status"] == "in_progress"
    last = events[-1]["response"]
    assert len({e["response"]["id"] for e in events if "response" in e}) == 1
    assert last["output"] == [events[-2]["item"]]
    assert last["output"][0]["content"][0]["text"] == COUNT
    assert {e["item_id"] for e in events if "item_id" in e} == {last["output"][0]["id"]}
    assert last["usage"]["output_tokens"] == len(stored(server, turn_id).completion.token_ids)


def test_the_client_puts_a_stream_together(client: OpenAI) -> None:
    with client.responses.stream(model="m", input="both", tools=FUNCTIONS) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_response()
    message, weather, clock = answer.output
    assert answer.output_text.strip() == "Looking."
    assert message.type == "message"
    assert weather.type == clock.type == "function_call"
    assert [json.loads(call.arguments) for call in (weather, clock)] == [{"city": "Malmö"}, {"zone": "CET"}]


@pytest.mark.parametrize("stream", [False, True])
def test_max_output_tokens_make_it_incomplete(server: Server, stream: bool) -> None:
    answer, turn = ask(server, "count", stream=stream, max_output_tokens=3)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["status"] == "incomplete"
    assert (turn.completion.finish_reason, len(turn.completion.token_ids)) == ("length", 3)


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_answer_is_an_empty_message(server: Server, stream: bool) -> None:
    answer, turn = ask(server, "silence", stream=stream)
    assert answer["output"][0]["type"] == "message"
    history = [said("user", "silence"), *answer["output"], said("user", "say something")]
    _, after = ask(server, history)
    assert (after.session, after.parent) == (turn.session, turn.index)


@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_their_results_are_one_turn_after_the_other(server: Server, stream: bool) -> None:
    asked = [said("user", f"both, {stream}")]
    answer, first = ask(server, asked, stream=stream, tools=FUNCTIONS)
    message, *calls = answer["output"]
    assert message["content"][0]["text"].strip() == "Looking."
    assert [(c["type"], c["name"], c["status"]) for c in calls] == [
        ("function_call", "weather", "completed"),
        ("function_call", "clock", "completed"),
    ]
    assert [c["call_id"] for c in calls] == [c.id for c in first.message.tool_calls]
    assert all(c["id"].startswith("fc_") and c["id"] != c["call_id"] for c in calls)
    assert len({item["id"] for item in answer["output"]}) == 3
    results = [{"type": "function_call_output", "call_id": c["call_id"], "output": c["name"]} for c in calls]
    answer, second = ask(server, [*asked, *answer["output"], *results], stream=stream, tools=FUNCTIONS)
    assert answer["output"][0]["content"][0]["text"] == "It is done."
    assert_extends(second, first)
    assert reactions(server, first.session) == {first.index: [("tool", "weather"), ("tool", "clock")]}


def test_the_events_of_calls(server: Server) -> None:
    body = {"input": "patch it", "tools": [CUSTOM], "stream": True}
    answer = httpx.post(f"{server.url}{RESPONSES}", json=body, headers=server.headers, timeout=60)
    kinds = [event["type"].removeprefix("response.") for event in streamed(answer.text)[2:-1]]
    item = ("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done")
    assert tuple(kinds) == item
    body = {"input": "weather", "tools": FUNCTIONS, "stream": True}
    answer = httpx.post(f"{server.url}{RESPONSES}", json=body, headers=server.headers, timeout=60)
    events = streamed(answer.text)[2:-1]
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert (kinds[0], *kinds[-2:]) == ("output_item.added", "function_call_arguments.done", "output_item.done")
    assert set(kinds[1:-2]) == {"function_call_arguments.delta"}
    assert "".join(event.get("delta", "") for event in events) == events[-2]["arguments"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_free_form_tool_is_called_with_its_input(server: Server, stream: bool) -> None:
    asked = [said("user", f"patch it, {stream}")]
    choice = {"type": "custom", "name": "patch"}
    answer, first = ask(server, asked, stream=stream, tools=[CUSTOM])
    (call,) = answer["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "patch", '*** begin\n+"hi"\n')
    assert call["id"].startswith("ctc_")
    assert [tool.name for tool in first.tools] == ["patch"]
    assert set(first.tools[0].parameters["properties"]) == {"input"}
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"}
    answer, second = ask(server, [*asked, call, result], stream=stream, tools=[CUSTOM])
    assert answer["output"][0]["content"][0]["text"] == "It is done."
    assert_extends(second, first)
    assert reactions(server, first.session) == {first.index: [("tool", "ok")]}
    forced, _ = ask(server, "patch it", stream=stream, tools=[CUSTOM, *FUNCTIONS], tool_choice=choice)
    assert forced["output"][0]["input"] == call["input"]


def test_arguments_that_are_no_input_are_handed_over(server: Server) -> None:
    answer, _ = ask(server, "patch oddly", tools=[CUSTOM])
    assert json.loads(answer["output"][0]["input"]) == {"file": "a"}


def test_a_tool_in_a_namespace(server: Server) -> None:
    asked = [said("user", "spawn")]
    answer, first = ask(server, asked, tools=[SPACE, {"type": "web_search"}])
    (call,) = answer["output"]
    assert (call["namespace"], call["name"]) == ("agents", "spawn")
    assert len(first.tools) == 1
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "started"}
    _, second = ask(server, [*asked, call, result], tools=[SPACE, {"type": "web_search"}])
    assert_extends(second, first)


def test_tool_choice(server: Server) -> None:
    answer, turn = ask(server, "hello", tools=FUNCTIONS, tool_choice="none")
    assert (turn.tools, answer["output"][0]["type"]) == ((), "message")
    answer, _ = ask(server, "weather", tools=FUNCTIONS, tool_choice="required")
    assert answer["output"][0]["name"] == "weather"
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "clock"}]}
    _, turn = ask(server, "hello", tools=FUNCTIONS, tool_choice=allowed)
    assert [tool.name for tool in turn.tools] == ["clock"]
    answer, _ = ask(server, "both", tools=FUNCTIONS, parallel_tool_calls=False)
    assert [item["type"] for item in answer["output"]] == ["message", "function_call"]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probs_are_those_of_the_turn(server: Server, stream: bool) -> None:
    include = ["message.output_text.logprobs"]
    answer, turn = ask(server, "hello", stream=stream, include=include, top_logprobs=2)
    listed = answer["output"][0]["content"][0]["logprobs"]
    assert [token["logprob"] for token in listed] == pytest.approx(turn.completion.logprobs)
    assert all(len(token["top_logprobs"]) == 2 for token in listed)
    assert b"".join(bytes(token["bytes"]) for token in listed).decode().startswith("You said: hello")


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_comes_back_sealed(thinker: Server, stream: bool) -> None:
    """As Codex replays it: without its text."""
    asked = [said("user", f"hello {stream}")]
    answer, first = ask(thinker, asked, stream=stream, include=["reasoning.encrypted_content"], store=False)
    thinking, message = answer["output"]
    assert (thinking["type"], thinking["summary"]) == ("reasoning", [])
    assert thinking["id"].startswith("rs_")
    assert thinking["content"] == [{"type": "reasoning_text", "text": THOUGHT}]
    assert message["content"][0]["text"] == "Hello!"
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert first.message == Message(role="assistant", content="Hello!", reasoning=THOUGHT)
    replayed = {"type": "reasoning", "summary": [], "encrypted_content": thinking["encrypted_content"]}
    _, second = ask(thinker, [*asked, replayed, message, said("user", "and?")], stream=stream)
    assert second.messages[1] == first.message
    assert (second.session, second.parent) == (first.session, first.index)


def test_thinking_is_a_summary_for_who_asks_for_one(thinker: Server) -> None:
    body = {"input": "hello", "reasoning": {"summary": "auto"}, "stream": True}
    answer = httpx.post(f"{thinker.url}{RESPONSES}", json=body, headers=thinker.headers, timeout=60)
    events = streamed(answer.text)
    thinking, message = events[-1]["response"]["output"]
    assert thinking["summary"] == [{"type": "summary_text", "text": THOUGHT}]
    assert "encrypted_content" not in thinking
    kinds = [e["type"].removeprefix("response.") for e in events if e.get("output_index") == 0]
    deltas = [kind for kind in kinds if kind == "reasoning_summary_text.delta"]
    assert deltas
    assert kinds == [
        *("output_item.added", "reasoning_summary_part.added"),
        *deltas,
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
    ]
    assert message["content"][0]["text"] == "Hello!"


def test_the_client_goes_on_with_a_previous_response(client: OpenAI, server: Server) -> None:
    first = client.responses.create(model="m", input="remember me", instructions="Be terse.")
    second = client.responses.with_raw_response.create(model="m", input="again", previous_response_id=first.id)
    turn = stored(server, second.headers["X-OpenClaw-RL-Turn"])
    assert [(m.role, m.content) for m in turn.messages] == [
        ("user", "remember me"),
        ("assistant", "You said: remember me"),
        ("user", "again"),
    ]
    assert (turn.index, turn.parent) == (1, 0)
    answer = second.parse()
    assert answer.previous_response_id == first.id
    third, last = ask(server, "once more", previous_response_id=answer.id, stream=True)
    assert third["output"][0]["content"][0]["text"] == "You said: once more"
    assert_extends(last, turn)
    assert reactions(server, turn.session) == {0: [("user", "again")], 1: [("user", "once more")]}


def test_the_same_words_twice_go_on_where_the_id_says(server: Server) -> None:
    """Two conversations that read alike: only the id tells them apart."""
    one, first = ask(server, "twin", headers={"X-Session-Id": "twin-one"})
    two, _ = ask(server, "twin", headers={"X-Session-Id": "twin-two"})
    assert one["id"] != two["id"]
    _, turn = ask(server, "go on", previous_response_id=one["id"])
    assert (turn.session, turn.parent) == ("twin-one", 0)
    assert_extends(turn, first)


@pytest.mark.parametrize("named", [False, True])
def test_a_session_that_is_over_goes_on(server: Server, named: bool) -> None:
    headers = {"X-Session-Done": "1"} | ({"X-Session-Id": "over"} if named else {})
    answer, turn = ask(server, f"the end, {named}", headers=headers)
    eventually(lambda: closed(server, turn.session))
    _, after = ask(server, "not quite", previous_response_id=answer["id"])
    assert_extends(after, turn)


def test_another_user_cannot_go_on_or_look(server: Server) -> None:
    mine, _ = ask(server, "mine")
    with Admin(server) as admin:
        _, key = admin.add_key("bob")
    bob = {"Authorization": f"Bearer {key}"}
    error = refused(server, 404, headers=bob, previous_response_id=mine["id"])
    assert (error["param"], error["code"]) == ("previous_response_id", "not_found")
    assert_error(httpx.get(f"{server.url}{RESPONSES}/{mine['id']}", headers=bob), 404)
    his, turn = ask(server, "his", headers=bob)
    _, after = ask(server, "his again", headers=bob, previous_response_id=his["id"])
    assert_extends(after, turn)
    assert httpx.get(f"{server.url}{RESPONSES}/{his['id']}", headers=bob).json()["output"] == his["output"]


@pytest.mark.parametrize("name", ["resp_nobody", "resp_", "msg_1", "resp_MHMuMQ"])
def test_a_response_that_is_not_there(client: OpenAI, server: Server, name: str) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        client.responses.create(model="m", input="hi", previous_response_id=name)
    assert error.value.param == "previous_response_id"
    assert_error(httpx.get(f"{server.url}{RESPONSES}/{name}", headers=server.headers), 404)


def test_what_is_not_to_be_stored_cannot_be_asked_for(server: Server) -> None:
    answer, _ = ask(server, "between us", store=False)
    assert answer["store"] is False
    assert "store" in refused(server, 404, previous_response_id=answer["id"])["message"]


@pytest.mark.parametrize("flags", "0123")
def test_a_name_that_was_changed_makes_nothing_retrievable(server: Server, flags: str) -> None:
    answer, turn = ask(server, "between the two of us", store=False)
    name = "resp_" + base64.urlsafe_b64encode(f"{flags}{turn.id}".encode()).decode().rstrip("=")
    assert "store" in refused(server, 404, previous_response_id=name)["message"]
    found = httpx.get(f"{server.url}/v1/responses/{name}", headers=server.headers)
    assert found.status_code == 404
    assert "store: false" in found.json()["error"]["message"]
    assert answer["output"][0]["content"][0]["text"] not in found.text
    assert_error(httpx.get(f"{server.url}{RESPONSES}/{answer['id']}", headers=server.headers), 404)


def test_a_response_can_be_looked_at_again(client: OpenAI, server: Server) -> None:
    made, _ = ask(server, "both", tools=[*FUNCTIONS, CUSTOM], instructions="Look.", model="served")
    found: dict[str, Any] = client.responses.retrieve(made["id"]).to_dict()
    Response.model_validate(found)
    same = ("id", "object", "status", "output", "instructions", "created_at")
    assert {key: found[key] for key in same} == {key: made[key] for key in same}
    assert [tool["type"] for tool in found["tools"]] == ["function", "function", "custom"]
    assert found["usage"] == {**made["usage"], "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    short, _ = ask(server, "count", max_output_tokens=3)
    assert client.responses.retrieve(short["id"]).status == "incomplete"
    patch, _ = ask(server, "patch it", tools=[CUSTOM])
    assert client.responses.retrieve(patch["id"]).to_dict()["output"] == patch["output"]


def test_a_response_is_not_deleted_or_streamed_again(client: OpenAI, server: Server) -> None:
    made, _ = ask(server, "keep me")
    path = f"{server.url}{RESPONSES}/{made['id']}"
    assert_error(httpx.delete(path, headers=server.headers), 405)
    assert_error(httpx.get(path), 401)
    with pytest.raises(openai.BadRequestError):
        client.responses.retrieve(made["id"], stream=True)


def test_a_turn_looks_as_if_it_came_by_chat(server: Server) -> None:
    """Only the name of the dialect tells them apart."""
    functions = [
        {"type": "function", "function": {k: t[k] for k in t if k not in ("type", "strict")}} for t in FUNCTIONS
    ]
    texts = ("both of a kind", "and?")
    answer, first = ask(server, [said("developer", "Be brief."), said("user", texts[0])], tools=FUNCTIONS)
    history = [said("developer", "Be brief."), said("user", texts[0]), *answer["output"]]
    results = [
        {"type": "function_call_output", "call_id": c.id, "output": c.name, "id": "fco_1"}
        for c in first.message.tool_calls
    ]
    _, second = ask(server, [*history, *results, said("user", texts[1])], tools=FUNCTIONS)

    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": texts[0]}]
    named = {"X-Session-Id": "by-chat"}
    chat = server.chat(messages, tools=functions, headers=named).json()["choices"][0]["message"]
    messages += [
        chat,
        *({"role": "tool", "tool_call_id": c["id"], "content": c["function"]["name"]} for c in chat["tool_calls"]),
    ]
    server.chat([*messages, {"role": "user", "content": texts[1]}], tools=functions, headers=named)
    by_chat = [stored(server, f"by-chat.{i}") for i in range(2)]
    for one, other in zip([first, second], by_chat, strict=True):
        assert one.prompt_ids == other.prompt_ids
        assert one.completion.token_ids == other.completion.token_ids
        assert (one.tools, one.kind, one.parent, one.skip, one.chain) == (
            *(other.tools, other.kind, other.parent, other.skip, other.chain),
        )
        assert [without_ids(m) for m in one.messages] == [without_ids(m) for m in other.messages]
    assert [list(r.values()) for r in (reactions(server, first.session), reactions(server, "by-chat"))] == [
        [[("tool", "weather"), ("tool", "clock"), ("user", "and?")]]
    ] * 2


def without_ids(message: Message) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return message.role, message.content.strip(), message.reasoning, calls


def test_who_opts_out_is_not_trained_on(client: OpenAI, server: Server) -> None:
    raw = client.responses.with_raw_response.create(
        model="m", input="private", extra_headers={"X-No-Train": "1", "X-Session-Id": "private"}
    )
    assert stored(server, raw.headers["X-OpenClaw-RL-Turn"]).skip is Skip.OPTED_OUT
    after, turn = ask(server, "still private", previous_response_id=raw.parse().id)
    assert (turn.session, turn.skip) == ("private", Skip.OPTED_OUT)
    assert after["status"] == "completed"


def test_a_prompt_beyond_the_window(client: OpenAI) -> None:
    """The stream that says so is in test_long_prompts.py."""
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="m", input="word " * WINDOW)
    assert error.value.code == "context_length_exceeded"


def test_a_mistake_is_told_by_its_field(client: OpenAI, server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="m", input=[{"type": "item_reference", "id": "msg_1"}])
    assert error.value.param == "input.0"
    assert refused(server, 400, text={"format": {"type": "json_object"}})["param"] == "text.format"


def test_silence_is_filled_with_events(tmp_path: Path) -> None:
    """Codex takes no notice of comments: what keeps its stream alive is data."""
    settings = ("engine.scripted.tokens_per_s=4", "gateway.keepalive_s=0.05", replies(("^count", COUNT)))
    with Server(tmp_path / "data", *settings) as server, openai_client(server) as client:
        with client.responses.with_streaming_response.create(
            model="m", input="count", stream=True, max_output_tokens=3
        ) as response:
            text = "".join(response.iter_text())
        events = streamed(text)
        assert not any(line.startswith(":") for line in text.splitlines())
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        assert sum(event["type"] == "response.in_progress" for event in events) > 3
        assert events[-1]["type"] == "response.incomplete"
        with client.responses.stream(model="m", input="count", max_output_tokens=3) as stream:
            assert [event.type for event in stream][-1] == "response.incomplete"


class Codex:
    """Requests of the form that the Codex CLI sends: its headers, its keys, its items, the history always whole."""

    def __init__(self, server: Server, session: str) -> None:
        self._server = server
        self._session = session
        self._turn = 0
        self.history: list[dict[str, Any]] = [
            {**said("developer", "You help with code in a terminal."), "id": "msg_a"},
            {
                "type": "message",
                "id": "msg_b",
                "role": "developer",
                "content": [{"type": "input_text", "text": text} for text in ("<skills>none</skills>", "<rules/>")],
            },
            {**said("user", "<environment><cwd>/src</cwd></environment>"), "id": "msg_c"},
        ]

    def says(self, text: str) -> Turn:
        self._turn += 1
        self.history.append({**said("user", text), "id": f"msg_u{self._turn}"})
        return self.goes_on()

    def goes_on(self) -> Turn:
        """One request; what it is answered with becomes history, item by item as it was finished."""
        about = {"session_id": self._session, "thread_id": self._session, "turn_id": f"{self._session}-{self._turn}"}
        headers = {
            "session-id": self._session,
            "thread-id": self._session,
            "x-client-request-id": self._session,
            "x-codex-window-id": f"{self._session}:0",
            "x-codex-turn-metadata": json.dumps({**about, "request_kind": "turn"}),
            "accept": "text/event-stream",
            "originator": "codex_exec",
            "user-agent": "codex_exec/9.9.9 (Linux; x86_64) xterm",
        }
        request = {
            "model": "any",
            "input": self.history,
            "tools": [*FUNCTIONS, SPACE, {"type": "web_search", "external_web_access": True}],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": self._session,
            "client_metadata": {**about, "root_turn_id": about["turn_id"]},
        }
        answer = httpx.post(
            f"{self._server.url}{RESPONSES}", json=request, headers={**self._server.headers, **headers}, timeout=60
        )
        assert answer.status_code == 200, answer.text
        events = streamed(answer.text)
        assert events[-1]["type"] == "response.completed"
        self.history += [event["item"] for event in events if event["type"] == "response.output_item.done"]
        return stored(self._server, answer.headers["X-OpenClaw-RL-Turn"])

    def runs_the_tools(self) -> Turn:
        calls = [item for item in self.history if item["type"] == "function_call"]
        self.history += [
            {"type": "function_call_output", "id": f"fco_{c['call_id']}", "call_id": c["call_id"], "output": c["name"]}
            for c in calls
        ]
        return self.goes_on()


def test_codex_lands_as_one_session_of_main_turns(server: Server) -> None:
    codex, other = Codex(server, "01a1dce5-codex"), Codex(server, "01a1dce6-other")
    turns = [codex.says("hello"), codex.says("both, please")]
    other.says("hello")
    turns += [codex.runs_the_tools(), codex.says("thanks")]
    assert [turn.id for turn in turns] == [f"01a1dce5-codex.{i}" for i in range(4)]
    assert [turn.parent for turn in turns] == [None, 0, 1, 2]
    assert {(turn.kind, turn.skip) for turn in turns} == {("main", None)}
    for turn, before in zip(turns[1:], turns, strict=False):
        assert_extends(turn, before)
    assert reactions(server, "01a1dce5-codex") == {
        0: [("user", "both, please")],
        1: [("tool", "weather"), ("tool", "clock")],
        2: [("user", "thanks")],
    }
    session = reader(server).session("01a1dce5-codex")
    assert session is not None
    assert session.client.startswith("codex")
    assert [turn.index for turn in reader(server).turns("01a1dce6-other")] == [0]

"""The real `openai` package against the running server: what it asks for, and what it must get back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI, Stream
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam, ChatCompletionToolParam

from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Skip
from tests.server import Server
from tests.wire.asking import closed, eventually, openai_client, reader, replies, stored

WINDOW = 4096
MODEL = "smollm2-135m-instruct"
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "clock", "arguments": {"zone": "CET"}}\n</tool_call>'
LONG = " ".join(f"word{i}" for i in range(1500))

TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"the {name}",
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}},
        },
    }
    for name, key in (("weather", "city"), ("clock", "zone"))
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    rules = replies(
        ("^both", f"Looking.\n{WEATHER}\n{CLOCK}"),
        ("^time", CLOCK),
        ("^weather", WEATHER),
        ("^count", "one two three four five six seven eight nine ten"),
        ("tool_response", "It is sunny."),
        ("^long", LONG),
    )
    with Server(tmp_path_factory.mktemp("openai") / "data", f"engine.context_window={WINDOW}", rules) as running:
        yield running


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An engine that takes its time, for answers that are cancelled in the middle."""
    settings = ("engine.scripted.tokens_per_s=50", replies(("^long", LONG)))
    with Server(tmp_path_factory.mktemp("paced") / "data", *settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with openai_client(server) as made:
        yield made


def says(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def test_chat_answers_with_a_whole_completion(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="any-name", messages=says("hello"))
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.model == "any-name"
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "You said: hello"
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.completion_tokens_details is not None


def test_headers_name_version_and_turn(client: OpenAI, server: Server) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=says("hello"), extra_headers={"X-Request-Id": "my-request-1"}
    )
    assert raw.headers["X-OpenClaw-RL-Version"] == "v0"
    assert raw.headers["X-Request-Id"] == "my-request-1"
    turn = stored(server, raw.headers["X-OpenClaw-RL-Turn"])
    answer = raw.parse()
    assert turn.message.content == answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(turn.prompt_ids)
    assert answer.usage.completion_tokens == len(turn.completion.token_ids)


def test_stream_comes_in_tokens_between_a_role_and_a_finish_reason(client: OpenAI, server: Server) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="echoed", messages=says("count"), stream=True, stream_options={"include_usage": True}
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["X-OpenClaw-RL-Version"] == "v0"
        turn_id = response.headers["X-OpenClaw-RL-Turn"]
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(line.removeprefix("data: ")) for line in lines[:-1]]
    assert len({(c.id, c.created, c.model, c.object) for c in chunks}) == 1
    assert chunks[0].model == "echoed"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    *body, finish, usage = chunks
    assert [c.choices[0].finish_reason for c in body] == [None] * len(body)
    assert all(c.choices[0].delta.role is None for c in body[1:])
    assert finish.choices[0].finish_reason == "stop"
    assert finish.choices[0].delta.content is None
    assert "".join(c.choices[0].delta.content or "" for c in body) == "one two three four five six seven eight nine ten"
    assert usage.choices == []
    assert usage.usage is not None
    turn = stored(server, turn_id)
    assert usage.usage.completion_tokens == len(turn.completion.token_ids)
    assert usage.usage.prompt_tokens == len(turn.prompt_ids)
    assert usage.usage.total_tokens == usage.usage.prompt_tokens + usage.usage.completion_tokens


def test_stream_without_usage_has_no_usage_chunk(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=says("hello"), stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_come_as_calls_and_their_results_go_back(client: OpenAI, stream: bool) -> None:
    asked = says("weather please")
    calls, finish, content = one_answer(client, stream, messages=asked, tools=TOOLS)
    assert finish == "tool_calls"
    assert not content
    ((call_id, name, arguments),) = calls
    assert (name, json.loads(arguments)) == ("weather", {"city": "Malmö"})
    assert call_id.isalnum()
    history: list[Any] = [
        *asked,
        {"role": "assistant", "content": None, "tool_calls": [call_json(call_id, name, arguments)]},
        {"role": "tool", "tool_call_id": call_id, "content": "sunny"},
    ]
    calls, finish, content = one_answer(client, stream, messages=history, tools=TOOLS)
    assert (calls, finish, content) == ([], "stop", "It is sunny.")


@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls(client: OpenAI, stream: bool) -> None:
    calls, finish, content = one_answer(client, stream, messages=says("both"), tools=TOOLS)
    assert finish == "tool_calls"
    assert content.strip() == "Looking."
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
        ("weather", {"city": "Malmö"}),
        ("clock", {"zone": "CET"}),
    ]
    assert len({call_id for call_id, _, _ in calls}) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls_can_be_switched_off(client: OpenAI, stream: bool) -> None:
    calls, finish, _ = one_answer(client, stream, messages=says("both"), tools=TOOLS, parallel_tool_calls=False)
    assert finish == "tool_calls"
    assert [name for _, name, _ in calls] == ["weather"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "clock"}}])
def test_tool_choice_forces_a_call(client: OpenAI, stream: bool, choice: Any) -> None:
    calls, finish, content = one_answer(client, stream, messages=says("time"), tools=TOOLS, tool_choice=choice)
    assert finish == "tool_calls"
    assert not content
    ((_, name, arguments),) = calls
    assert (name, json.loads(arguments)) == ("clock", {"zone": "CET"})


def test_tool_choice_none_offers_no_tools(client: OpenAI, server: Server) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=says("hello"), tools=TOOLS, tool_choice="none"
    )
    assert stored(server, raw.headers["X-OpenClaw-RL-Turn"]).tools == ()
    assert raw.parse().choices[0].message.tool_calls is None


def test_n_makes_as_many_choices_and_turns(client: OpenAI, server: Server) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=says("three of you"), n=3)
    answer = raw.parse()
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"You said: three of you"}
    turns = [stored(server, name) for name in raw.headers["X-OpenClaw-RL-Turn"].split(",")]
    assert len({turn.index for turn in turns}) == 3
    assert len({turn.session for turn in turns}) == 1
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(turns[0].prompt_ids)
    assert answer.usage.completion_tokens == sum(len(turn.completion.token_ids) for turn in turns)


def test_n_streams_interleaved_choices(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=says("count"), n=3, stream=True))
    assert len({chunk.id for chunk in chunks}) == 1
    for index in range(3):
        own = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert own[0].delta.role == "assistant"
        assert "".join(c.delta.content or "" for c in own) == "one two three four five six seven eight nine ten"
        assert [c.finish_reason for c in own if c.finish_reason] == ["stop"]
        assert own[-1].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_are_those_in_the_store(client: OpenAI, server: Server, renderer: Renderer, stream: bool) -> None:
    options: dict[str, Any] = {"messages": says("naïve 🙂"), "logprobs": True, "top_logprobs": 3, "model": MODEL}
    if stream:
        with client.chat.completions.with_streaming_response.create(stream=True, **options) as response:
            turn_id = response.headers["X-OpenClaw-RL-Turn"]
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        chunks = [ChatCompletionChunk.model_validate_json(line) for line in lines[:-1]]
        listed = [t for c in chunks for choice in c.choices if choice.logprobs for t in choice.logprobs.content or ()]
    else:
        raw = client.chat.completions.with_raw_response.create(**options)
        turn_id = raw.headers["X-OpenClaw-RL-Turn"]
        logprobs = raw.parse().choices[0].logprobs
        assert logprobs is not None
        listed = list(logprobs.content or ())
    completion = stored(server, turn_id).completion
    assert [token.logprob for token in listed] == pytest.approx(completion.logprobs, rel=1e-6)
    assert [bytes(token.bytes or ()) for token in listed] == [renderer.token_bytes(i) for i in completion.token_ids]
    text = b"".join(bytes(token.bytes or ()) for token in listed).decode()
    assert text.removesuffix("<|im_end|>") == "You said: naïve 🙂"
    assert all(len(token.top_logprobs) == 3 for token in listed)
    assert all(token.top_logprobs[0].logprob >= token.top_logprobs[-1].logprob for token in listed)


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_cut_the_answer(client: OpenAI, stream: bool) -> None:
    _, finish, content = one_answer(client, stream, messages=says("count"), stop=["zzz", " four"])
    assert (finish, content) == ("stop", "one two three")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_max_tokens_ends_with_length(client: OpenAI, stream: bool, name: str) -> None:
    _, finish, content = one_answer(client, stream, messages=says("count"), **{name: 3})
    assert finish == "length"
    assert content
    assert "one two three four five".startswith(content)


def test_seed_and_sampling_are_kept(client: OpenAI, server: Server) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=says("hello"), seed=42, temperature=0.25, top_p=0.5, presence_penalty=-1, max_tokens=7
    )
    sampling = stored(server, raw.headers["X-OpenClaw-RL-Turn"]).sampling
    assert (sampling.seed, sampling.temperature, sampling.top_p) == (42, 0.25, 0.5)
    assert (sampling.presence_penalty, sampling.max_tokens) == (-1.0, 7)


def test_fields_of_the_trade_are_accepted(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        ],
        metadata={"a": "b"},
        reasoning_effort="low",
        store=False,
        user="someone",
        response_format={"type": "text"},
        extra_body={"chat_template_kwargs": {"enable_thinking": False}, "unheard_of": [1, {"x": None}]},
    )
    assert answer.choices[0].message.content == "You said: hello"


def test_wrong_key_is_a_401(server: Server) -> None:
    with (
        openai_client(server, api_key="ocrl-wrong") as stranger,
        pytest.raises(openai.AuthenticationError) as error,
    ):
        stranger.chat.completions.create(model=MODEL, messages=says("hello"))
    assert error.value.status_code == 401
    assert error.value.code == "invalid_api_key"


@pytest.mark.parametrize("model", ["anything@v7", f"{MODEL}@v1", f"{MODEL}@"])
def test_unknown_pin_is_a_404(client: OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model=model, messages=says("hello"))
    assert error.value.code == "model_not_found"
    assert error.value.param == "model"


@pytest.mark.parametrize("model", [f"{MODEL}@v0", f"{MODEL}@0"])
def test_pin_of_a_served_version(client: OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=model, messages=says("hello"))
    assert raw.headers["X-OpenClaw-RL-Version"] == "v0"
    assert raw.parse().model == model


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_beyond_the_window_is_a_400(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=MODEL, messages=says("word " * WINDOW), stream=stream)
    assert error.value.code == "context_length_exceeded"
    assert str(WINDOW) in error.value.message


def test_answer_ends_where_the_window_does(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=says("long" + " word" * (WINDOW - 200)))
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == WINDOW


def test_image_part_is_a_400_that_names_the_model(client: OpenAI) -> None:
    image: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": [image]}])
    assert MODEL in error.value.message
    assert error.value.param == "messages.0.content.0"


def test_response_format_is_a_400(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(
            model=MODEL,
            messages=says("hello"),
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        )
    assert error.value.param == "response_format"


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    listed = client.models.list().data
    assert {MODEL, f"{MODEL}@v0"} <= {model.id for model in listed}
    assert all(model.owned_by and model.created > 0 for model in listed)
    assert client.models.retrieve(MODEL).id == MODEL
    assert client.models.retrieve(f"{MODEL}@v0").id == f"{MODEL}@v0"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/knows-me")


def test_extra_headers_name_the_session(client: OpenAI, server: Server) -> None:
    headers = {"X-Session-Id": "from-openai", "X-Turn-Type": "side", "X-Session-Done": "1"}
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=says("hello"), extra_headers=headers)
    assert raw.headers["X-OpenClaw-RL-Turn"] == "from-openai.0"
    assert stored(server, "from-openai.0").skip is Skip.SIDE_TURN
    eventually(lambda: closed(server, "from-openai"))


def test_closing_a_stream_cancels_it(paced: Server) -> None:
    with openai_client(paced) as client:
        stream: Stream[ChatCompletionChunk] = client.chat.completions.create(
            model=MODEL, messages=says("long"), stream=True, extra_headers={"X-Session-Id": "hung-up"}
        )
        received = [next(stream) for _ in range(4)]
        stream.close()
    assert received
    turn = eventually(lambda: reader(paced).turn("hung-up", 0))
    assert turn.skip is Skip.ABORTED
    assert turn.completion.finish_reason == "abort"
    assert 0 < len(turn.completion.token_ids) < 1000
    assert turn.message.content.startswith("".join(c.choices[0].delta.content or "" for c in received))
    assert LONG.startswith(turn.message.content)
    assert not turn.delivered


def call_json(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def one_answer(client: OpenAI, stream: bool, **request: Any) -> tuple[list[tuple[str, str, str]], str | None, str]:
    """Calls as (id, name, arguments), finish reason and content, however they were delivered."""
    if stream:
        return assembled(client.chat.completions.create(model=MODEL, stream=True, **request))
    choice = client.chat.completions.create(model=MODEL, **request).choices[0]
    calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()]
    return calls, choice.finish_reason, choice.message.content or ""


def assembled(chunks: Iterable[ChatCompletionChunk]) -> tuple[list[tuple[str, str, str]], str | None, str]:
    """Puts deltas together as clients do: the first of a call has id and name, later ones only more arguments."""
    content, finish = "", None
    calls: dict[int, tuple[str, str, str]] = {}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        content += choice.delta.content or ""
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or ():
            assert call.function is not None
            arguments = call.function.arguments or ""
            if call.index not in calls:
                assert call.type == "function"
                assert call.id
                assert call.function.name
                calls[call.index] = (call.id, call.function.name, arguments)
            else:
                assert call.id is None
                assert call.function.name is None
                known = calls[call.index]
                calls[call.index] = (known[0], known[1], known[2] + arguments)
    assert list(calls) == list(range(len(calls)))
    return list(calls.values()), finish, content

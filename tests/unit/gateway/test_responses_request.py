"""Responses bodies, good and bad."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import orjson
import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.dialects.responses.names import (
    ResponseName,
    free_form_input,
    is_free_form,
    sealed,
    split_namespace,
)
from openclaw_rl.gateway.api.dialects.responses.request import ResponsesRequest, parse
from openclaw_rl.gateway.api.dialects.spoken import Limits
from openclaw_rl.types import Completion, Message, Sampling, Tool, ToolCall, Turn

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
RUN = {"type": "function", "name": "run", "description": "runs", "parameters": {"type": "object"}, "strict": True}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE+"},
}
AGENTS = {"type": "namespace", "name": "agents", "description": "more", "tools": [RUN, PATCH]}


def read(*items: Any, **body: Any) -> ResponsesRequest:
    return parse(orjson.dumps({"input": list(items) or "hi", **body}), LIMITS, "tiny")


def refused(raw: bytes) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        parse(raw, LIMITS, "tiny")
    assert 400 <= refusal.value.status < 500
    return refusal.value


def said(role: str, content: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def call(call_id: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "run", "arguments": arguments, **more}


def result(call_id: str, output: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def test_a_whole_request() -> None:
    spoken = read(
        said("developer", [{"type": "input_text", "text": "Be"}, {"type": "input_text", "text": "brief."}], id="msg_1"),
        {"role": "user", "content": "hi", "unknown": {"x": 1}},
        thought("hm"),
        said("assistant", [{"type": "output_text", "text": "Looking.", "annotations": []}], status="completed"),
        call("c1", '{"a": 1}', id="fc_1", status="completed"),
        call("c2"),
        result("c1", [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]),
        result("c2"),
        said("user", "thanks"),
        model="any",
        instructions="Be kind.",
        tools=[RUN, PATCH, AGENTS, {"type": "web_search", "external_web_access": True}],
        tool_choice={"type": "function", "name": "run"},
        parallel_tool_calls=False,
        max_output_tokens=7,
        temperature=0,
        top_p=0.5,
        top_logprobs=2,
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content", "message.output_text.logprobs", "what.is.this"],
        text={"format": {"type": "text"}, "verbosity": "low"},
        truncation="auto",
        store=False,
        stream=True,
        prompt_cache_key="k",
        metadata={"a": "b"},
        client_metadata={"c": "d"},
        user="me",
    )
    request = spoken.request
    assert request.messages == (
        Message(role="system", content="Be kind."),
        Message(role="system", content="Be\nbrief."),
        Message(role="user", content="hi"),
        Message(
            role="assistant",
            content="Looking.",
            reasoning="hm",
            tool_calls=(
                ToolCall(id="c1", name="run", arguments='{"a": 1}'),
                ToolCall(id="c2", name="run", arguments="{}"),
            ),
        ),
        Message(role="tool", content="one\ntwo", tool_call_id="c1"),
        Message(role="tool", content="done", tool_call_id="c2"),
        Message(role="user", content="thanks"),
    )
    run, patch, agents_run, agents_patch = request.tools
    assert run == Tool(name="run", description="runs", parameters={"type": "object"})
    assert (patch.name, is_free_form(patch), is_free_form(run)) == ("patch", True, False)
    assert patch.description.startswith("Changes files.")
    assert "start: LINE+" in patch.description
    assert split_namespace(agents_run.name) == ("agents", "run")
    assert (split_namespace(agents_patch.name), is_free_form(agents_patch)) == (("agents", "patch"), True)
    assert (request.tool_choice, request.forced_tool, request.parallel_tool_calls) == ("required", "run", False)
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_logprobs) == (7, 0, 0.5, 2)
    assert (request.model, spoken.stream, spoken.follows) == ("any", True, None)
    wishes = spoken.wishes
    assert (wishes.logprobs, wishes.sealed, wishes.summary) == (True, True, True)
    assert (wishes.instructed, request.retrievable) == (True, False)
    assert wishes.echo["metadata"] == {"a": "b"}
    assert wishes.echo["tools"][3] == {"type": "web_search", "external_web_access": True}


def test_what_is_not_said_gets_the_defaults() -> None:
    spoken = read()
    assert spoken.request.messages == (Message(role="user", content="hi"),)
    assert (spoken.request.sampling.temperature, spoken.request.sampling.max_tokens) == (0.7, 1000)
    wishes = spoken.wishes
    assert (spoken.stream, wishes.logprobs, wishes.sealed, wishes.summary) == (False, False, False, False)
    assert (wishes.instructed, spoken.request.retrievable) == (False, True)


@pytest.mark.parametrize(
    ("items", "answers"),
    [
        ([said("assistant", "A"), said("assistant", "B")], [("A", "", 0), ("B", "", 0)]),
        ([thought("t"), call("1")], [("", "t", 1)]),
        ([call("1"), call("2"), said("assistant", "late")], [("late", "", 2)]),
        ([said("assistant", "A"), call("1"), thought("t"), said("assistant", "B")], [("AB", "t", 1)]),
        ([said("assistant", "A"), thought("t"), said("assistant", "B")], [("A", "", 0), ("B", "t", 0)]),
        ([thought("t"), thought("u"), said("assistant", "A")], [("A", "tu", 0)]),
        ([call("1"), result("1"), call("2"), result("2")], [("", "", 1), ("", "", 1)]),
        ([call("1"), {"type": "web_search_call", "id": "ws_1", "status": "completed"}, call("2")], [("", "", 2)]),
        ([call("1"), {"type": "local_shell_call", "action": {"type": "exec"}}, call("2")], [("", "", 2)]),
        ([call("1"), {"type": "local_shell_call_output", "output": "x"}, call("2")], [("", "", 2)]),
        ([{"type": "compaction", "encrypted_content": "x"}, said("assistant", "A")], [("A", "", 0)]),
        ([{"type": "compaction_summary", "encrypted_content": "x"}, said("assistant", "A")], [("A", "", 0)]),
        ([thought("alone"), said("user")], [("", "alone", 0)]),
    ],
)
def test_what_one_answer_said_is_one_message(items: list[Any], answers: list[tuple[str, str, int]]) -> None:
    messages = read(said("user"), *items).request.messages
    found = [(m.content, m.reasoning, len(m.tool_calls)) for m in messages if m.role == "assistant"]
    assert found == answers


def test_thinking_is_read_from_whatever_is_left_of_it() -> None:
    def reasoning(**item: Any) -> str:
        messages = read(said("user"), {"type": "reasoning", **item}, said("assistant")).request.messages
        return messages[1].reasoning

    summary = [{"type": "summary_text", "text": "short"}]
    content = [{"type": "reasoning_text", "text": "long"}]
    assert reasoning(summary=summary) == "short"
    assert reasoning(summary=summary, content=content) == "long"
    assert reasoning(summary=summary, content=None, encrypted_content="gAAAAB of another server") == "short"
    assert reasoning(summary=[], encrypted_content=sealed("Ünder seal")) == "Ünder seal"
    assert reasoning(summary=[], encrypted_content=sealed("x")[:-1] + "?") == ""
    assert "Ünder" not in sealed("Ünder seal")


def test_a_free_form_call_is_a_function_with_one_argument() -> None:
    spoken = read(
        said("user"),
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'say "hi"\n', "namespace": "agents"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        tools=[AGENTS],
        tool_choice={"type": "custom", "name": "patch", "namespace": "agents"},
    )
    _, answer, output = spoken.request.messages
    assert answer.tool_calls[0].name == spoken.request.tools[1].name == spoken.request.forced_tool
    assert json.loads(answer.tool_calls[0].arguments) == {"input": 'say "hi"\n'}
    assert free_form_input(answer.tool_calls[0].arguments) == 'say "hi"\n'
    assert output == Message(role="tool", content="ok", tool_call_id="c")


@pytest.mark.parametrize("arguments", ['{"input": 5}', '{"patch": "x"}', "[]", '{"inp', ""])
def test_other_arguments_of_a_free_form_tool_are_handed_over_as_they_are(arguments: str) -> None:
    assert free_form_input(arguments) == arguments


def test_allowed_tools_are_all_that_is_shown() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "patch"}]}
    request = read(tools=[RUN, PATCH], tool_choice=choice).request
    assert [tool.name for tool in request.tools] == ["patch"]
    assert (request.tool_choice, request.forced_tool) == ("required", None)
    choice["mode"] = "auto"
    assert read(tools=[RUN, PATCH], tool_choice=choice).request.tool_choice == "auto"


def test_none_and_required() -> None:
    assert read(tools=[RUN], tool_choice="none").request.tool_choice == "none"
    assert read(tools=[RUN], tool_choice="required").request.tool_choice == "required"


@pytest.mark.parametrize("instructed", [False, True])
@pytest.mark.parametrize("session", ["s", "bob/a.b", "x" * 200 + "~!"])
def test_a_response_is_named_after_its_turn(instructed: bool, session: str) -> None:
    name = ResponseName(turn_id=f"{session}.7", instructed=instructed)
    assert str(name).startswith("resp_")
    assert str(name).isascii()
    assert str(name).replace("_", "").replace("-", "").isalnum()
    assert ResponseName.parse(str(name)) == name
    assert read(previous_response_id=str(name)).follows == f"{session}.7"


@pytest.mark.parametrize(
    "name",
    ["", "resp_", "resp_x", "resp_!!!", "resp_ü", "chatcmpl-1", "resp_fake00004", "resp_MHMuMQ\n", "MHMuMQ"],
)
def test_a_name_that_cannot_be_one_is_not_found(name: str) -> None:
    error = refused(orjson.dumps({"input": "hi", "previous_response_id": name}))
    assert (error.status, error.param, error.code) == (404, "previous_response_id", "not_found")


def test_what_an_older_release_did_not_keep_is_not_found_again() -> None:
    name = "resp_" + urlsafe_b64encode(b"2s.1").decode().rstrip("=")
    error = refused(orjson.dumps({"input": "hi", "previous_response_id": name}))
    assert (error.status, error.param) == (404, "previous_response_id")
    assert "store" in str(error)


@pytest.mark.parametrize("instructions", [None, "new"])
@pytest.mark.parametrize("instructed", [False, True])
def test_instructions_are_not_inherited(instructions: str | None, instructed: bool) -> None:
    earlier = (Message(role="system", content="old"), Message(role="user", content="one"))
    turn = Turn(
        session="s",
        index=0,
        parent=None,
        kind="main",
        created_at=0.0,
        finished_at=0.0,
        dialect="responses",
        model="tiny",
        messages=earlier,
        tools=(),
        sampling=Sampling(max_tokens=1),
        prompt_ids=(1,),
        completion=Completion(token_ids=(), logprobs=(), finish_reason="stop", version_spans=()),
        message=Message(role="assistant", content="1"),
        request_digest="",
        chain="",
    )
    name = ResponseName(turn_id="s.0", instructed=instructed)
    spoken = read(said("user", "two"), previous_response_id=str(name), instructions=instructions).after(turn)
    expected = ["one", "1", "two"]
    # a system message that was an item of the conversation is part of it
    expected = expected if instructed else ["old", *expected]
    expected = expected if instructions is None else [instructions, *expected]
    assert [m.content for m in spoken.request.messages] == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", []),
        ("input", None),
        ("input", 5),
        ("input", "a\x00b"),
        ("input", ["hi"]),
        ("input.0", [{"type": "item_reference", "id": "msg_1"}]),
        ("input.0", [{"id": "msg_1"}]),
        ("input.0.type", [{"type": "shell_dance_call", "call_id": "c"}]),
        ("input.0.type", [{"type": ["x"]}]),
        ("input.0.role", [said("wizard")]),
        ("input.0.role", [{"type": "message", "content": "hi"}]),
        ("input.1.content", [said("user"), said("user", 5)]),
        ("input.0.content.0.text", [said("user", [{"type": "input_text", "text": 5}])]),
        ("input.0.content.0.type", [said("user", [{"type": "hologram"}])]),
        ("input.0.content.0", [said("user", [{"type": "input_image", "image_url": "data:"}])]),
        ("input.0.content", [said("assistant", "a\x00b")]),
        ("input.1.call_id", [said("user"), {"type": "function_call", "name": "x", "arguments": "{}"}]),
        ("input.1.arguments", [said("user"), {"type": "function_call", "name": "x", "call_id": "c", "arguments": {}}]),
        ("input.1", [said("user"), call("c", "\x00")]),
        ("input.0.input", [{"type": "custom_tool_call", "name": "x", "call_id": "c"}]),
        ("input.0.output", [{"type": "function_call_output", "call_id": "c"}]),
        ("input.0.output.0", [result("c", [{"type": "input_image", "image_url": "data:"}])]),
        ("input.0.summary", [{"type": "reasoning", "summary": "x"}]),
        ("input.0.summary.0.text", [{"type": "reasoning", "summary": [{"type": "summary_text"}]}]),
        ("input", [said("user")] * 101),
        ("instructions", 5),
        ("instructions", "\x00"),
        ("model", "\x00"),
        ("previous_response_id", 5),
        ("max_output_tokens", 0),
        ("max_output_tokens", 10**12),
        ("max_output_tokens", True),
        ("temperature", 2.1),
        ("top_p", 0),
        ("top_logprobs", 21),
        ("include", "logprobs"),
        ("store", "no"),
        ("stream", "yes"),
        ("metadata", "x"),
        ("tools", [{"name": "x"}]),
        ("tools.0.name", [{"type": "function"}]),
        ("tools.0.name", [{"type": "custom", "name": "\x00"}]),
        ("tools.0.tools.1.name", [{"type": "namespace", "name": "n", "tools": [RUN, {"type": "custom"}]}]),
        ("tool_choice", "required"),
        ("tool_choice", "sometimes"),
        ("tool_choice", {"type": "function", "name": "nobody"}),
        ("tool_choice", {"type": "web_search_preview"}),
        ("tool_choice", {"type": "allowed_tools", "mode": "required", "tools": []}),
        ("tool_choice", {"type": "allowed_tools", "tools": [{"type": "function", "name": {}}]}),
        ("text.format", {"format": {"type": "json_schema", "name": "x", "schema": {}}}),
        ("text.format", {"format": {"type": "json_object"}}),
        ("background", True),
        ("conversation", "conv_1"),
        ("prompt", {"id": "pmpt_1"}),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    error = refused(orjson.dumps({"input": "hi", field.split(".")[0]: value}))
    assert (error.param or "").startswith(field), f"{error.param}: {error}"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"model": "x"}'], ids=str)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    refused(raw)


def test_media_for_a_text_model_is_refused_by_its_name() -> None:
    error = refused(orjson.dumps({"input": [said("user", [{"type": "input_image", "image_url": "data:"}])]}))
    assert "tiny" in str(error)

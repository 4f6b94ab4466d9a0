"""Answers as Responses writes them, where no engine can be made to say just that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from openclaw_rl.gateway.answer.capture import Piece
from openclaw_rl.gateway.api.dialects.responses.answer import ResponsesStream, ResponsesWishes, whole
from openclaw_rl.gateway.api.dialects.spoken import Envelope
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import (
    AnswerEvent,
    Completion,
    Message,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCall,
    ToolCallStart,
)

ENVELOPE = Envelope(token="t", turn_id="s.0", created=5, model="m", version="v0")
ECHO = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@dataclass
class Given:
    """An answer that is whole."""

    message: Message = field(default_factory=lambda: Message(role="assistant"))
    num_prompt_tokens: int = 3
    num_cached_tokens: int = 2

    @property
    def answers(self) -> Sequence[tuple[Message, Completion]]:
        done = Completion(token_ids=(), logprobs=(), finish_reason="stop", version_spans=())
        return [(self.message, done)]


def stream(renderer: Renderer, **wishes: Any) -> ResponsesStream:
    return ResponsesStream(ENVELOPE, Given(), ResponsesWishes(echo=ECHO, **wishes), renderer)


def piece(*events: AnswerEvent) -> Piece:
    return Piece(events, (), (), None)


def read(data: bytes) -> list[dict[str, Any]]:
    found = [orjson.loads(block.partition(b"\ndata: ")[2]) for block in data.split(b"\n\n") if block]
    for event in found:
        EVENT.validate_python(event)
    return found


def items(renderer: Renderer, *events: AnswerEvent) -> list[tuple[str, str]]:
    """The output items that these events make, however they are cut into pieces: their types and what they say."""
    made = []
    for cut in range(len(events) + 1):
        writer = stream(renderer)
        data = writer.piece(0, piece(*events[:cut])) + writer.piece(0, piece(*events[cut:]))
        read_events = read(writer.begin() + data + writer.end())
        assert [e["sequence_number"] for e in read_events] == list(range(len(read_events)))
        output = read_events[-1]["response"]["output"]
        assert output == [e["item"] for e in read_events if e["type"] == "response.output_item.done"]
        assert [e["output_index"] for e in read_events if e["type"] == "response.output_item.added"] == list(
            range(len(output))
        )
        made.append([(i["type"], i["arguments"] if "arguments" in i else i["content"][0]["text"]) for i in output])
    assert all(each == made[0] for each in made)
    return made[0]


CALL = (ToolCallStart(0, "c0", "run"), ToolArgumentsDelta(0, "{}"))
CALL_2 = (ToolCallStart(1, "c1", "run"), ToolArgumentsDelta(1, '{"a"'), ToolArgumentsDelta(1, ":1}"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), [("message", "")]),
        ((TextDelta("\n"),), [("message", "\n")]),
        ((TextDelta("\n"), *CALL), [("function_call", "{}")]),
        ((TextDelta("\n"), TextDelta("a"), TextDelta(" ")), [("message", "\na ")]),
        ((*CALL, TextDelta("\n"), *CALL_2), [("function_call", "{}"), ("function_call", '{"a":1}')]),
        (
            (TextDelta("a"), *CALL, TextDelta("\n"), TextDelta("b")),
            [("message", "a"), ("function_call", "{}"), ("message", "\nb")],
        ),
        ((ReasoningDelta("t"), ReasoningDelta("u"), *CALL), [("reasoning", "tu"), ("function_call", "{}")]),
        ((ReasoningDelta("t"),), [("reasoning", "t")]),
    ],
)
def test_events_become_items(
    renderer: Renderer, events: tuple[AnswerEvent, ...], expected: list[tuple[str, str]]
) -> None:
    assert items(renderer, *events) == expected


def test_a_sign_of_life_is_an_event_of_its_own_number(renderer: Renderer) -> None:
    writer = stream(renderer)
    first = writer.ping  # before `begin`, as after a long wait for the first token
    events = read(writer.begin() + first + writer.piece(0, piece(TextDelta("a"))) + writer.ping + writer.end())
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    kinds = [e["type"] for e in events]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.in_progress"]
    assert kinds.count("response.in_progress") == 3
    assert {e["response"]["status"] for e in events if e["type"] == "response.in_progress"} == {"in_progress"}


def test_a_failure_is_told_to_both_kinds_of_clients(renderer: Renderer) -> None:
    writer = stream(renderer)
    data = writer.begin() + writer.piece(0, piece(*CALL, TextDelta("a"))) + writer.error("gone", "engine_failed")
    last = read(data)[-1]
    assert last["type"] == "response.failed"
    assert last["error"]["code"] == "engine_failed"
    assert last["error"]["message"] == "gone"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "gone"}
    assert [item["type"] for item in last["response"]["output"]] == ["function_call"]


def test_whole_and_stream_say_the_same(renderer: Renderer) -> None:
    call = ToolCall(id="c0", name="run", arguments="{}")
    message = Message(role="assistant", content="a", reasoning="t", tool_calls=(call,))
    response = orjson.loads(whole(ENVELOPE, Given(message), ResponsesWishes(echo=ECHO, sealed=True), renderer))
    writer = ResponsesStream(ENVELOPE, Given(message), ResponsesWishes(echo=ECHO, sealed=True), renderer)
    events = (ReasoningDelta("t"), TextDelta("a"), *CALL)
    assert read(writer.begin() + writer.piece(0, piece(*events)) + writer.end())[-1]["response"] == response
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]

"""Spans as a collector gets them: real OTLP over HTTP, and nothing of what was said unless it is asked for."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from openclaw_rl.config import load_config
from openclaw_rl.tracking.observers import Observer, Observers
from openclaw_rl.tracking.opentelemetry import OpenTelemetryObserver
from openclaw_rl.tracking.registry import make_observers
from openclaw_rl.types import Message, Skip, ToolCall, Turn
from tests.factories.events import credited
from tests.factories.turns import make_turn


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A collector that keeps what it is sent."""
    bodies: list[bytes] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def spans_of(bodies: list[bytes]) -> dict[str, Any]:
    """By their names."""
    requests = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    return {
        span.name: span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def facts(span: Any) -> dict[str, Any]:
    kinds = ("string_value", "int_value", "double_value", "array_value")
    return {one.key: next(getattr(one.value, k) for k in kinds if one.value.HasField(k)) for one in span.attributes}


def conversation() -> list[Turn]:
    """An answer that calls a tool, and the one behind the result."""
    call = ToolCall(id="call-1", name="weather", arguments='{"city": "Rome", "key": "sk-abcdefghijklmnopqrstuvwx1234"}')
    asked = make_turn(1, text="")
    asked = replace(asked, message=Message(role="assistant", tool_calls=(call,)), model="/models/tiny#abc")
    result = Message(role="tool", content="a secret of Rome", tool_call_id="call-1")
    told = make_turn(2, text="It is warm, says a secret.")
    messages = (*asked.messages, asked.message, result)
    return [asked, replace(told, messages=messages, parent=1, session=asked.session, model="/models/tiny#abc")]


def sent(*, content: bool, private: bool = False) -> tuple[dict[str, Any], list[bytes]]:
    with collector() as (endpoint, bodies):
        observers = Observers([OpenTelemetryObserver(endpoint, content=content, release="1")])
        for turn in conversation():
            observers.answered(replace(turn, skip=Skip.OPTED_OUT) if private else turn)
        judged, credit = credited()
        if private:
            judged = replace(judged, session=replace(judged.session, opted_out=True))
        observers.credited(judged, credit)
        observers.close()
    return spans_of(bodies), bodies


def test_answers_tools_and_verdicts_are_spans_of_one_trace() -> None:
    spans, _ = sent(content=False)
    assert set(spans) == {"chat tiny", "execute_tool weather", "evaluate rules"}
    chat, tool, verdict = (spans[name] for name in ("chat tiny", "execute_tool weather", "evaluate rules"))
    told = facts(chat)
    assert (told["gen_ai.operation.name"], told["gen_ai.provider.name"]) == ("chat", "openclaw_rl")
    assert told["gen_ai.response.id"].startswith(told["gen_ai.conversation.id"])
    assert told["gen_ai.usage.output_tokens"] > 0
    assert chat.trace_id == tool.trace_id == verdict.trace_id
    assert tool.parent_span_id == chat.parent_span_id, "the call is the first answer's, which the second goes on from"
    assert facts(tool)["gen_ai.tool.name"] == "weather"
    (event,) = verdict.events
    assert event.name == "gen_ai.evaluation.result"
    assert facts(event)["gen_ai.evaluation.score.value"] == -1
    assert facts(event)["gen_ai.evaluation.score.label"] == "bad"
    assert verdict.parent_span_id == chat.span_id, "the verdict lies below its answer"


def test_nothing_that_was_said_leaves_unless_it_is_asked_for() -> None:
    _, bodies = sent(content=False)
    assert b"secret" not in b"".join(bodies)
    assert b"quotes what was said" not in b"".join(bodies)
    _, bodies = sent(content=True, private=True)
    assert b"secret" not in b"".join(bodies)
    assert b"quotes what was said" not in b"".join(bodies)


def test_with_content_secrets_are_taken_out() -> None:
    spans, bodies = sent(content=True)
    assert "It is warm" in facts(spans["chat tiny"])["gen_ai.output.messages"]
    assert facts(spans["execute_tool weather"])["gen_ai.tool.call.result"] == "a secret of Rome"
    assert facts(spans["evaluate rules"].events[0])["gen_ai.evaluation.explanation"] == "quotes what was said"
    assert b"sk-abcdefghijklmnopqrstuvwx1234" not in b"".join(bodies)


def test_without_a_collector_learning_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers([OpenTelemetryObserver("http://127.0.0.1:1", content=False, release="1")])
    observers.credited(*credited())
    observers.close()


def test_one_switch_turns_it_on() -> None:
    from prometheus_client import CollectorRegistry

    with collector() as (endpoint, bodies):
        config = load_config(env={}, overrides=[f"tracking.opentelemetry_endpoint={endpoint}"]).config
        observers = make_observers(config, registry=CollectorRegistry())
        observers.answered(conversation()[0])
        observers.close()
        assert set(spans_of(bodies)) == {"chat tiny"}


def test_who_does_nothing_with_turns_is_not_told_of_them() -> None:
    class Deaf(Observer):
        name = "deaf"

    class Hears(Observer):
        name = "hears"

        def __init__(self) -> None:
            self.turns: list[Turn] = []

        def answered(self, turn: Turn) -> None:
            self.turns.append(turn)

    hears = Hears()
    observers = Observers([Deaf(), hears])
    assert [one.hears_turns for one in observers._listeners] == [False, True]
    turn = conversation()[0]
    observers.answered(turn)
    observers.close()
    assert hears.turns == [turn]

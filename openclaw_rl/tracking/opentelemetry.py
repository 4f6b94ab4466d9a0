"""Turns, tool calls and verdicts -> OpenTelemetry spans after its GenAI conventions, over OTLP.

    chat MODEL          an answer: tokens, versions, why it ended
    execute_tool NAME   from a tool call of an answer to its result, which a client brought
    evaluate JUDGE      with the event gen_ai.evaluation.result: score, label, explanation

A conversation is a trace, and ids are digests of the names of sessions and turns: a verdict that comes minutes later,
or after a restart, lies below its answer. What was said is left out unless it is asked for; of private conversations it
always is, and secrets are taken out of the rest.

https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from openclaw_rl.redaction import redact
from openclaw_rl.tracking.observers import Observer
from openclaw_rl.types import Credit, JudgedTurn, Message, Skip, ToolCall, Turn

_PROVIDER = "openclaw_rl"
_MAX_CALLS = 1000
"""Tool calls whose results are waited for; the oldest go first."""
_NS = 1e9
_PRIVATE = (Skip.OPTED_OUT,)
_EVALUATION = "gen_ai.evaluation.result"

Value = str | int | float | Sequence[str]


class OpenTelemetryObserver(Observer):
    """`endpoint` is that of an OTLP collector over HTTP; `content` puts what is said into the spans."""

    name = "OpenTelemetry"

    def __init__(self, endpoint: str, *, content: bool, release: str) -> None:
        self._content = content
        self._ids = _NamedIds()
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "openclaw-rl", "service.version": release}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=5)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("openclaw_rl", release)
        self._calls: OrderedDict[str, tuple[Turn, ToolCall]] = OrderedDict()

    def answered(self, turn: Turn) -> None:
        self._results(turn)
        completion, sampling, model = turn.completion, turn.sampling, _model(turn)
        told: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDER,
            "gen_ai.request.model": model,
            "gen_ai.response.model": f"{model}@{completion.versions[-1]}" if completion.versions else model,
            "gen_ai.response.id": turn.id,
            "gen_ai.conversation.id": turn.session,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.usage.input_tokens": len(turn.prompt_ids),
            "gen_ai.usage.output_tokens": len(completion.token_ids),
            "gen_ai.response.finish_reasons": (completion.finish_reason,),
            "openclaw_rl.turn.kind": turn.kind,
        }
        if self._tells(turn):
            told["gen_ai.input.messages"] = _parts(turn.messages)
            told["gen_ai.output.messages"] = _parts((turn.message,))
        parent = None if turn.parent is None else _context(turn.session, f"{turn.session}.{turn.parent}")
        self._ids.next = _trace_id(turn.session), _span_id(turn.id)
        span = self._tracer.start_span(
            f"chat {model}",
            context=None if parent is None else set_span_in_context(NonRecordingSpan(parent)),
            kind=SpanKind.SERVER,
            attributes=told,
            start_time=int(turn.created_at * _NS),
        )
        if completion.finish_reason == "error":
            span.set_attribute("error.type", "engine_failed")
            span.set_status(Status(StatusCode.ERROR))
        span.end(int(turn.finished_at * _NS))
        for call in turn.message.tool_calls:
            self._calls[f"{turn.session} {call.id}"] = (turn, call)
            if len(self._calls) > _MAX_CALLS:
                self._calls.popitem(last=False)

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        turn, judgement, verdict = judged.turn, judged.judgement, judged.judgement.verdict
        told: dict[str, Value] = {"gen_ai.evaluation.name": judgement.judge, "gen_ai.response.id": turn.id}
        if verdict.reward is not None:
            told["gen_ai.evaluation.score.value"] = verdict.reward
        label = {1: "good", 0: "neutral", -1: "bad"}.get(verdict.score, "") if verdict.score is not None else ""
        told["gen_ai.evaluation.score.label"] = label or verdict.outcome
        if verdict.reason and self._tells(turn) and not judged.session.opted_out:
            told["gen_ai.evaluation.explanation"] = redact(verdict.reason)
        at = int(judgement.judged_at * _NS)
        span = self._below(turn, f"evaluate {judgement.judge}", at, {"openclaw_rl.credit": credit.skip or "sample"})
        span.add_event(_EVALUATION, told, timestamp=at)
        span.end(int(credit.credited_at * _NS))

    def close(self) -> None:
        self._provider.shutdown()

    def _results(self, turn: Turn) -> None:
        """The results of calls that this request brings."""
        for message in turn.messages:
            found = None
            if message.role == "tool" and message.tool_call_id is not None:
                found = self._calls.pop(f"{turn.session} {message.tool_call_id}", None)
            if found is None:
                continue
            asked, call = found
            told: dict[str, Value] = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.type": "function",
            }
            if self._tells(turn):
                told["gen_ai.tool.call.arguments"] = redact(call.arguments)
                told["gen_ai.tool.call.result"] = redact(message.content)
            span = self._below(asked, f"execute_tool {call.name}", int(asked.finished_at * _NS), told)
            span.end(int(turn.created_at * _NS))

    def _below(self, turn: Turn, name: str, start: int, told: Mapping[str, Value]) -> Span:
        """A span below an answer's."""
        above = set_span_in_context(NonRecordingSpan(_context(turn.session, turn.id)))
        return self._tracer.start_span(name, context=above, kind=SpanKind.INTERNAL, attributes=told, start_time=start)

    def _tells(self, turn: Turn) -> bool:
        return self._content and turn.skip not in _PRIVATE


class _NamedIds(IdGenerator):
    """The ids that `next` holds, used once; random ones otherwise."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.next[0] if self.next is not None else _fresh(16)

    def generate_span_id(self) -> int:
        if self.next is None:
            return _fresh(8)
        span_id, self.next = self.next[1], None
        return span_id

    def is_trace_id_random(self) -> bool:
        return False


def _fresh(size: int) -> int:
    return int.from_bytes(secrets.token_bytes(size), "big") or 1


def _context(session: str, turn: str) -> SpanContext:
    return SpanContext(
        trace_id=_trace_id(session),
        span_id=_span_id(turn),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _trace_id(session: str) -> int:
    return int.from_bytes(blake2b(session.encode(), digest_size=16).digest(), "big") or 1


def _span_id(turn: str) -> int:
    return int.from_bytes(blake2b(turn.encode(), digest_size=8).digest(), "big") or 1


def _model(turn: Turn) -> str:
    """Its name alone: a model in a folder is called like the folder, without where that is."""
    return (turn.model.rpartition("#")[0] or turn.model).rstrip("/").rpartition("/")[2]


def _parts(messages: Sequence[Message]) -> str:
    """Messages as the conventions write them."""
    told = []
    for one in messages:
        parts: list[dict[str, str]] = []
        if one.reasoning:
            parts.append({"type": "reasoning", "content": redact(one.reasoning)})
        if one.content:
            parts.append({"type": "text", "content": redact(one.content)})
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": redact(call.arguments)}
            for call in one.tool_calls
        ]
        told.append({"role": one.role, "parts": parts})
    return json.dumps(told, ensure_ascii=False)

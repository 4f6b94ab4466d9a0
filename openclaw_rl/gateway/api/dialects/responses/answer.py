"""Answers as Responses writes them: one JSON object, or server-sent events.

It turns pieces and finished answers into output items: thinking, message, calls, in the order in which they come. What
is in them was decided elsewhere. Log-probs are those of every sampled token, and stand with the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import orjson

from openclaw_rl.gateway.answer.capture import Piece
from openclaw_rl.gateway.api.dialects.errors import openai_error
from openclaw_rl.gateway.api.dialects.responses.names import (
    ResponseName,
    free_form_input,
    is_free_form,
    item_id,
    sealed,
    split_namespace,
)
from openclaw_rl.gateway.api.dialects.spoken import (
    Envelope,
    SpokenAnswer,
    num_answer_tokens,
    num_reasoning_tokens,
    token_logprobs,
)
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import (
    AnswerEvent,
    Completion,
    FinishReason,
    Json,
    Message,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolArgumentsDelta,
    ToolCallStart,
    Turn,
    events_of,
)

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
Event = tuple[str, dict[str, Json]]
"""The type of an event and its other fields."""

_STATUS: Mapping[FinishReason, Status] = {"length": "incomplete", "abort": "cancelled", "error": "failed"}
_NUM_OPENING_EVENTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesWishes:
    """What the request wants to be told, and `echo`: what the answer repeats of it.

    Thinking is shown as a summary where the client asks for summaries, for that is all that such clients show.
    """

    echo: Mapping[str, Json]
    tools: Sequence[Tool] = ()
    logprobs: bool = False
    sealed: bool = False
    summary: bool = False
    instructed: bool = False


class ResponsesStream:
    """The server-sent events of one answer. The first two numbers are kept for `begin`, which may be asked last."""

    def __init__(self, envelope: Envelope, answer: SpokenAnswer, wishes: ResponsesWishes, renderer: Renderer) -> None:
        self._envelope = envelope
        self._answer = answer
        self._wishes = wishes
        self._renderer = renderer
        self._output = _Output(envelope.turn_id, wishes)
        self._next_number = _NUM_OPENING_EVENTS

    @property
    def ping(self) -> bytes:
        """An event that says nothing new: some clients take no notice of comments and give up."""
        return self._written([("response.in_progress", {"response": self._response("in_progress")})])

    def begin(self) -> bytes:
        response = self._response("in_progress", output=[])
        kinds = ("response.created", "response.in_progress")
        return b"".join(_event(kind, {"response": response}, number) for number, kind in enumerate(kinds))

    def piece(self, index: int, piece: Piece) -> bytes:
        if self._wishes.logprobs and piece.token_ids:
            self._output.pending += token_logprobs(self._renderer, piece.token_ids, piece.logprobs, piece.top_logprobs)
        return self._written(self._output.add(piece.events))

    def end(self) -> bytes:
        (_, completion), *_ = self._answer.answers
        status = _STATUS.get(completion.finish_reason, "completed")
        out = self._written(self._output.finish(status))
        response = self._response(status, usage=_usage(self._answer, self._renderer))
        return out + self._written([(f"response.{status}", {"response": response})])

    def error(self, message: str, code: str) -> bytes:
        """Both what agents look for in a failed response, and what OpenAI's own clients look for in any event."""
        error = orjson.loads(openai_error(message, status=503, code=code))["error"]
        response = self._response("failed", error={"code": "server_error", "message": error["message"]})
        return self._written([("response.failed", {"response": response, "error": error})])

    def _response(
        self, status: Status, *, output: list[Json] | None = None, usage: Json = None, error: Json = None
    ) -> dict[str, Json]:
        items = self._output.done if output is None else output
        return _response(self._envelope, self._wishes, status, output=items, usage=usage, error=error)

    def _written(self, events: Iterable[Event]) -> bytes:
        out = b""
        for kind, fields in events:
            out += _event(kind, fields, self._next_number)
            self._next_number += 1
        return out


def refused(envelope: Envelope, wishes: ResponsesWishes, message: str, code: str) -> bytes:
    """All events of a stream that says only why there is no answer."""
    error = orjson.loads(openai_error(message, status=400, code=code))["error"]
    begun = _response(envelope, wishes, "in_progress", output=[])
    failed = _response(envelope, wishes, "failed", output=[], error={"code": code, "message": error["message"]})
    return _event("response.created", {"response": begun}, 0) + _event(
        "response.failed", {"response": failed, "error": error}, 1
    )


def whole(envelope: Envelope, answer: SpokenAnswer, wishes: ResponsesWishes, renderer: Renderer) -> bytes:
    """The one JSON object of an answer that is not streamed."""
    (message, completion), *_ = answer.answers
    status = _STATUS.get(completion.finish_reason, "completed")
    output = _Output(envelope.turn_id, wishes)
    if wishes.logprobs:
        output.pending += token_logprobs(renderer, completion.token_ids, completion.logprobs, completion.top_logprobs)
    for _ in (*output.add(events_of(message)), *output.finish(status)):
        pass
    return orjson.dumps(_response(envelope, wishes, status, output=output.done, usage=_usage(answer, renderer)))


def stored_response(name: ResponseName, turn: Turn, model: str, renderer: Renderer) -> bytes:
    """A response as it can be told from its turn: what the request wished of its form is not stored."""
    echo = {
        "instructions": turn.messages[0].content if name.instructed else None,
        "tools": [_tool(tool) for tool in turn.tools],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": turn.sampling.temperature,
        "top_p": turn.sampling.top_p,
        "max_output_tokens": turn.sampling.max_tokens,
        "store": True,
    }
    version = turn.completion.versions[0] if turn.completion.versions else ""
    created = int(turn.created_at)
    envelope = Envelope(token="", turn_id=turn.id, created=created, model=model, version=version)
    wishes = ResponsesWishes(echo=echo, tools=turn.tools, instructed=name.instructed)
    return whole(envelope, _Stored(turn), wishes, renderer)


@dataclass(frozen=True, slots=True)
class _Stored:
    """`SpokenAnswer` from a stored turn. How much of its prompt was in a cache is not known any more."""

    turn: Turn

    @property
    def answers(self) -> Sequence[tuple[Message, Completion]]:
        return [(self.turn.message, self.turn.completion)]

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.turn.prompt_ids)

    @property
    def num_cached_tokens(self) -> int:
        return 0


@dataclass(slots=True, kw_only=True)
class _TextItem:
    """An item whose text is one part of it: the message, or thinking."""

    id: str
    kind: Literal["output_text", "reasoning_text", "summary_text"]
    sealed: bool = False
    texts: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)

    def opened(self) -> Iterator[Event]:
        yield f"{self._part_event}.added", {**self._place, "part": self._part("", [])}

    def more(self, text: str, logprobs: list[Json]) -> Iterator[Event]:
        self.texts.append(text)
        self.logprobs += logprobs
        yield f"{self._text_event}.delta", {**self._place, "delta": text, **self._with_logprobs(logprobs)}

    def closed(self) -> Iterator[Event]:
        text = "".join(self.texts)
        yield f"{self._text_event}.done", {**self._place, "text": text, **self._with_logprobs(self.logprobs)}
        yield f"{self._part_event}.done", {**self._place, "part": self._part(text, self.logprobs)}

    def json(self, status: Status) -> dict[str, Json]:
        parts = [self._part("".join(self.texts), self.logprobs)] if status != "in_progress" else []
        if self.kind == "output_text":
            return {"type": "message", "id": self.id, "status": status, "role": "assistant", "content": parts}
        out: dict[str, Json] = {"type": "reasoning", "id": self.id, "status": status, "summary": []}
        out["summary" if self.kind == "summary_text" else "content"] = parts
        if self.sealed:
            out["encrypted_content"] = sealed("".join(self.texts))
        return out

    @property
    def _place(self) -> dict[str, Json]:
        return {"summary_index" if self.kind == "summary_text" else "content_index": 0}

    @property
    def _part_event(self) -> str:
        return "response.reasoning_summary_part" if self.kind == "summary_text" else "response.content_part"

    @property
    def _text_event(self) -> str:
        return "response.reasoning_summary_text" if self.kind == "summary_text" else f"response.{self.kind}"

    def _part(self, text: str, logprobs: list[Json]) -> dict[str, Json]:
        notes: dict[str, Json] = {"annotations": []} if self.kind == "output_text" else {}
        return {"type": self.kind, "text": text, **notes, **self._with_logprobs(logprobs)}

    def _with_logprobs(self, logprobs: list[Json]) -> dict[str, Json]:
        return {"logprobs": logprobs} if self.kind == "output_text" else {}


@dataclass(slots=True, kw_only=True)
class _Call:
    """A call of a function; or of a free-form tool, whose input is known when its arguments are whole."""

    id: str
    call_id: str
    shown_name: str
    free_form: bool
    texts: list[str] = field(default_factory=list)

    def opened(self) -> Iterator[Event]:
        yield from ()

    def more(self, text: str, logprobs: list[Json]) -> Iterator[Event]:
        self.texts.append(text)
        if not self.free_form:
            yield "response.function_call_arguments.delta", {"delta": text}

    def closed(self) -> Iterator[Event]:
        name, text = self._said
        if self.free_form:
            yield "response.custom_tool_call_input.delta", {"delta": text}
            yield "response.custom_tool_call_input.done", {name: text}
        else:
            yield "response.function_call_arguments.done", {name: text, "name": split_namespace(self.shown_name)[1]}

    def json(self, status: Status) -> dict[str, Json]:
        namespace, name = split_namespace(self.shown_name)
        said, text = self._said
        out: dict[str, Json] = {
            "type": "custom_tool_call" if self.free_form else "function_call",
            "id": self.id,
            "status": status,
            "call_id": self.call_id,
            "name": name,
            said: "" if status == "in_progress" else text,
        }
        return out if namespace is None else {**out, "namespace": namespace}

    @property
    def _said(self) -> tuple[str, str]:
        arguments = "".join(self.texts)
        return ("input", free_form_input(arguments)) if self.free_form else ("arguments", arguments)


class _Output:
    """What was said so far, item by item. Every step yields the events that tell of it."""

    def __init__(self, turn_id: str, wishes: ResponsesWishes) -> None:
        self._turn_id = turn_id
        self._wishes = wishes
        self._free_form = {tool.name for tool in wishes.tools if is_free_form(tool)}
        self._open: _TextItem | _Call | None = None
        self._blank = ""
        self.done: list[Json] = []
        self.pending: list[Json] = []
        """Log-probs of tokens that made no text yet."""

    def add(self, events: Iterable[AnswerEvent]) -> Iterator[Event]:
        for event in events:
            match event:
                case TextDelta(text):
                    yield from self._text(text)
                case ReasoningDelta(text):
                    kind: Literal["summary_text", "reasoning_text"]
                    kind = "summary_text" if self._wishes.summary else "reasoning_text"
                    if not self._is_open(kind):
                        yield from self._close("completed")
                        yield from self._begin(_TextItem(id=self._id("rs"), kind=kind, sealed=self._wishes.sealed))
                    yield from self._more(text, [])
                case ToolCallStart(_, call_id, name):
                    yield from self._close("completed")
                    free_form = name in self._free_form
                    item = self._id("ctc" if free_form else "fc")
                    yield from self._begin(_Call(id=item, call_id=call_id, shown_name=name, free_form=free_form))
                case ToolArgumentsDelta(_, text):
                    yield from self._more(text, [])

    def finish(self, status: Status) -> Iterator[Event]:
        """The answer is over; what it was cut off in says so. One that says nothing is an empty message."""
        if self._open is None:
            blank = self._blank
            yield from self._begin(_TextItem(id=self._id("msg"), kind="output_text"))
            yield from self._more(blank, self._taken())
        yield from self._close("completed" if status == "completed" else "incomplete")

    def _text(self, text: str) -> Iterator[Event]:
        """Blanks around calls are no message of their own: they are held back until there are words."""
        if not self._is_open("output_text"):
            text = self._blank + text
            if not text.strip():
                self._blank = text
                return
            yield from self._close("completed")
            yield from self._begin(_TextItem(id=self._id("msg"), kind="output_text"))
        yield from self._more(text, self._taken())

    def _is_open(self, kind: str) -> bool:
        return isinstance(self._open, _TextItem) and self._open.kind == kind

    def _begin(self, item: _TextItem | _Call) -> Iterator[Event]:
        self._blank = ""
        self._open = item
        yield "response.output_item.added", {"output_index": len(self.done), "item": item.json("in_progress")}
        yield from self._placed(item, item.opened())

    def _more(self, text: str, logprobs: list[Json]) -> Iterator[Event]:
        assert self._open is not None
        yield from self._placed(self._open, self._open.more(text, logprobs))

    def _close(self, status: Status) -> Iterator[Event]:
        item = self._open
        if item is None:
            return
        if isinstance(item, _TextItem) and item.kind == "output_text":
            item.logprobs += self._taken()
        yield from self._placed(item, item.closed())
        yield "response.output_item.done", {"output_index": len(self.done), "item": item.json(status)}
        self._open = None
        self.done.append(item.json(status))

    def _placed(self, item: _TextItem | _Call, events: Iterator[Event]) -> Iterator[Event]:
        for kind, fields in events:
            yield kind, {"item_id": item.id, "output_index": len(self.done), **fields}

    def _id(self, prefix: str) -> str:
        return item_id(prefix, self._turn_id, len(self.done))

    def _taken(self) -> list[Json]:
        taken, self.pending = self.pending, []
        return taken


def _response(
    envelope: Envelope,
    wishes: ResponsesWishes,
    status: Status,
    *,
    output: list[Json],
    usage: Json = None,
    error: Json = None,
) -> dict[str, Json]:
    name = ResponseName(turn_id=envelope.turn_id, instructed=wishes.instructed)
    return {
        "id": str(name),
        "object": "response",
        "created_at": envelope.created,
        "model": envelope.model,
        "status": status,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": output,
        **wishes.echo,
        "usage": usage,
    }


def _usage(answer: SpokenAnswer, renderer: Renderer) -> dict[str, Json]:
    num_output = num_answer_tokens(answer)
    return {
        "input_tokens": answer.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": answer.num_cached_tokens, "cache_write_tokens": 0},
        "output_tokens": num_output,
        "output_tokens_details": {"reasoning_tokens": num_reasoning_tokens(answer, renderer)},
        "total_tokens": answer.num_prompt_tokens + num_output,
    }


def _tool(tool: Tool) -> dict[str, Json]:
    """A tool as it can be told from what the model was shown."""
    if is_free_form(tool):
        return {"type": "custom", "name": tool.name, "description": tool.description}
    function = tool.to_json()["function"]
    return {"type": "function", **function, "strict": False}


def _event(kind: str, fields: Mapping[str, Json], number: int) -> bytes:
    data = orjson.dumps({"type": kind, "sequence_number": number, **fields})
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

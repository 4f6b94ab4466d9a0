"""Answers as Anthropic Messages writes them: one JSON object, or named server-sent events.

It turns pieces and finished answers into bytes. What is in them was decided elsewhere.

The arguments of a call reach this client as an object, so they are sent when they are whole. What is no JSON object
(small models sample such, and a length limit cuts anywhere) is sent as `{}`, which every tool that needs something
refuses by itself; half an object would make client libraries fail over the whole answer. The turn keeps what was
sampled.
"""

from __future__ import annotations

from hashlib import blake2b

import orjson

from openclaw_rl.gateway.answer.capture import Piece, sendable
from openclaw_rl.gateway.api.dialects.errors import anthropic_error
from openclaw_rl.gateway.api.dialects.spoken import Envelope, SpokenAnswer, num_answer_tokens
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import (
    AnswerEvent,
    Completion,
    Json,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesStream:
    """The server-sent events of one answer: a block for each run of thinking, of text, and for each call."""

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, envelope: Envelope, answer: SpokenAnswer, request: Request, renderer: Renderer) -> None:
        self._envelope = envelope
        self._answer = answer
        self._request = request
        self._renderer = renderer
        self._index = -1
        self._block: type[AnswerEvent] | None = None  # what the open block is made of
        self._held = ""  # what was thought in it, or is to be its input

    def begin(self) -> bytes:
        message = {**_envelope_json(self._envelope), "content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message={**message, "usage": usage(self._answer)})

    def piece(self, index: int, piece: Piece) -> bytes:
        return b"".join(map(self._write, piece.events))

    def end(self) -> bytes:
        ((_, completion),) = self._answer.answers
        delta = _stop(completion, self._request, self._renderer)
        return self._close() + _event("message_delta", delta=delta, usage=usage(self._answer)) + _event("message_stop")

    def error(self, message: str, code: str) -> bytes:
        return b"event: error\ndata: " + anthropic_error(message, status=503, code=code) + b"\n\n"

    def _write(self, event: AnswerEvent) -> bytes:
        match event:
            case TextDelta(text):
                return self._continue(TextDelta, {"type": "text", "text": ""}) + self._delta("text_delta", text=text)
            case ReasoningDelta(text):
                opening = self._continue(ReasoningDelta, {"type": "thinking", "thinking": "", "signature": ""})
                self._held += text
                return opening + self._delta("thinking_delta", thinking=text)
            case ToolCallStart(_, call_id, name):
                return self._close() + self._open(ToolCallStart, _tool_use(call_id, name, "{}"))
            case ToolArgumentsDelta(_, text):
                self._held += text
                return b""

    def _continue(self, kind: type[AnswerEvent], block: Json) -> bytes:
        """Opens a block unless one of this kind is open."""
        return b"" if self._block is kind else self._close() + self._open(kind, block)

    def _open(self, kind: type[AnswerEvent], block: Json) -> bytes:
        self._block = kind
        self._index += 1
        return _event("content_block_start", index=self._index, content_block=block)

    def _close(self) -> bytes:
        """Ends the open block, if there is one, with what its client needs to have it whole."""
        if self._block is None:
            return b""
        last = b""
        if self._block is ReasoningDelta:
            last = self._delta("signature_delta", signature=_signature(self._held))
        elif self._block is ToolCallStart:
            last = self._delta("input_json_delta", partial_json=_object_text(self._held))
        self._block, self._held = None, ""
        return last + _event("content_block_stop", index=self._index)

    def _delta(self, kind: str, **text: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **text})


def whole(envelope: Envelope, answer: SpokenAnswer, request: Request, renderer: Renderer) -> bytes:
    """The one JSON object of an answer that is not streamed."""
    ((message, completion),) = answer.answers
    content: list[Json] = []
    if message.reasoning:
        thought = message.reasoning
        content.append({"type": "thinking", "thinking": thought, "signature": _signature(thought)})
    if message.content:
        content.append({"type": "text", "text": message.content})
    content += [_tool_use(call.id, call.name, _object_text(call.arguments)) for call in message.tool_calls]
    stop = _stop(completion, request, renderer)
    return orjson.dumps({**_envelope_json(envelope), "content": content, **stop, "usage": usage(answer)})


def usage(answer: SpokenAnswer) -> dict[str, Json]:
    """Token counts as this dialect adds them up: `input_tokens` are those that were not read from a cache."""
    return {
        "input_tokens": answer.num_prompt_tokens - answer.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.num_cached_tokens,
        "output_tokens": num_answer_tokens(answer),
    }


def _signature(thought: str) -> str:
    """Clients send a thought back only with a signature. Ours is a digest, and nobody checks it."""
    return blake2b(thought.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _envelope_json(envelope: Envelope) -> dict[str, Json]:
    return {"id": f"msg_{envelope.token}", "type": "message", "role": "assistant", "model": envelope.model}


def _tool_use(call_id: str, name: str, arguments: str) -> dict[str, Json]:
    """The id is the one that is stored, so that turns of all dialects look alike."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": orjson.Fragment(arguments)}


def _object_text(arguments: str) -> str:
    """The JSON text of a call's arguments, exactly as sampled if it is an object."""
    try:
        return arguments if isinstance(orjson.loads(arguments), dict) else "{}"
    except orjson.JSONDecodeError:
        return "{}"


def _stop(completion: Completion, request: Request, renderer: Renderer) -> dict[str, Json]:
    found = _found_stop(completion, request, renderer) if completion.finish_reason == "stop" else None
    reason = "stop_sequence" if found is not None else _STOP_REASONS.get(completion.finish_reason, "end_turn")
    return {"stop_reason": reason, "stop_sequence": found}


def _found_stop(completion: Completion, request: Request, renderer: Renderer) -> str | None:
    """The stop string that ended an answer: the sampled text goes on to its end, and nothing goes on beyond one."""
    if not request.stop:
        return None
    decoder = renderer.decoder()
    text = sendable(decoder.push(completion.token_ids) + decoder.finish())
    found = [(text.find(stop), stop) for stop in request.stop if stop in text]
    return min(found)[1] if found else None


def _event(kind: str, **data: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **data}))

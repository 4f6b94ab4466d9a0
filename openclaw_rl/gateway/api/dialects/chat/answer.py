"""Answers as Chat Completions writes them: one JSON object, or server-sent events.

It turns pieces and finished answers into bytes. What is in them was decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import orjson

from openclaw_rl.gateway.answer.capture import Piece
from openclaw_rl.gateway.api.dialects.errors import openai_error
from openclaw_rl.gateway.api.dialects.spoken import (
    Envelope,
    SpokenAnswer,
    num_answer_tokens,
    num_reasoning_tokens,
    token_logprobs,
)
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import (
    Json,
    Message,
    ReasoningDelta,
    Request,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallStart,
)


class ChatWishes(Protocol):
    """What the request wants to be told."""

    @property
    def request(self) -> Request: ...

    @property
    def include_usage(self) -> bool: ...

    @property
    def logprobs(self) -> bool: ...


class ChatStream:
    """The server-sent events of one answer. A text delta, by far the commonest, is cut from prepared bytes."""

    ping = b": ping\n\n"

    def __init__(self, envelope: Envelope, answer: SpokenAnswer, chat: ChatWishes, renderer: Renderer) -> None:
        self._answer = answer
        self._chat = chat
        self._renderer = renderer
        self._envelope = _envelope_json(envelope, "chat.completion.chunk")
        self._head = b"data: " + orjson.dumps(self._envelope)[:-1] + b',"choices":[{"index":'

    def begin(self) -> bytes:
        opening = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(i, opening) for i in range(self._chat.request.num_choices))

    def piece(self, index: int, piece: Piece) -> bytes:
        """The chunks of one piece; with log-probs, ids that made no text yet still get a chunk of their own."""
        out = b""
        logprobs = None
        if self._chat.logprobs and piece.token_ids:
            logprobs = _logprobs(self._renderer, piece.token_ids, piece.logprobs, piece.top_logprobs)
        for event in piece.events:
            if isinstance(event, TextDelta) and logprobs is None:
                out += b"%b%d" % (self._head, index)
                out += b',"delta":{"content":%b},"logprobs":null,"finish_reason":null}]}\n\n' % orjson.dumps(event.text)
            else:
                out += self._chunk(index, _delta(event), logprobs=logprobs)
                logprobs = None
        if logprobs is not None:
            out += self._chunk(index, {}, logprobs=logprobs)
        return out

    def end(self) -> bytes:
        out = b""
        for index, (_, completion) in enumerate(self._answer.answers):
            out += self._chunk(index, {}, finish_reason=completion.finish_reason)
        if self._chat.include_usage:
            out += _event({**self._envelope, "choices": [], "usage": usage(self._answer, self._renderer)})
        return out + b"data: [DONE]\n\n"

    def error(self, message: str, code: str) -> bytes:
        return b"data: " + openai_error(message, status=503, code=code) + b"\n\n"

    def _chunk(self, index: int, delta: Json, *, logprobs: Json = None, finish_reason: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return _event({**self._envelope, "choices": [choice]})


def whole(envelope: Envelope, answer: SpokenAnswer, chat: ChatWishes, renderer: Renderer) -> bytes:
    """The one JSON object of an answer that is not streamed."""
    choices = []
    for index, (message, completion) in enumerate(answer.answers):
        logprobs = None
        if chat.logprobs:
            logprobs = _logprobs(renderer, completion.token_ids, completion.logprobs, completion.top_logprobs)
        choices.append(
            {
                "index": index,
                "message": _message(message),
                "logprobs": logprobs,
                "finish_reason": completion.finish_reason,
            }
        )
    return orjson.dumps(
        {**_envelope_json(envelope, "chat.completion"), "choices": choices, "usage": usage(answer, renderer)}
    )


def usage(answer: SpokenAnswer, renderer: Renderer) -> dict[str, Json]:
    """Token counts of one request, over all its choices."""
    num_prompt = answer.num_prompt_tokens
    num_completion = num_answer_tokens(answer)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": answer.num_cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": num_reasoning_tokens(answer, renderer)},
    }


def _logprobs(
    renderer: Renderer,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    top_logprobs: Sequence[Sequence[TokenLogprob]] | None,
) -> Json:
    return {"content": token_logprobs(renderer, token_ids, logprobs, top_logprobs), "refusal": None}


def _envelope_json(envelope: Envelope, kind: str) -> dict[str, Json]:
    return {
        "id": f"chatcmpl-{envelope.token}",
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "system_fingerprint": envelope.version,
    }


def _event(data: Json) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _message(message: Message) -> dict[str, Json]:
    out: dict[str, Json] = {"role": "assistant", "content": message.content or None, "refusal": None}
    if message.reasoning:
        # vLLM's clients read the first name, most agents the second.
        out["reasoning"] = out["reasoning_content"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = message.to_json()["tool_calls"]
    elif out["content"] is None:
        out["content"] = ""
    return out


def _delta(event: TextDelta | ReasoningDelta | ToolCallStart | ToolArgumentsDelta) -> Json:
    match event:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning": text, "reasoning_content": text}
        case ToolCallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolArgumentsDelta(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

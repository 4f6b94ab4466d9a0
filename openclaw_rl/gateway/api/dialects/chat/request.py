"""A Chat Completions body to a `Request`.

It knows the wire and nothing else: no session, no engine, no store. Fields that we do not use are ignored, as clients
send many; fields that we cannot honour are refused by name rather than dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.dialects.chat.answer import ChatStream, whole
from openclaw_rl.gateway.api.dialects.spoken import Envelope, Limits, Spoken, SpokenAnswer, StreamWriter
from openclaw_rl.gateway.api.dialects.wire import (
    Items,
    Wire,
    joined_text,
    read_body,
    refuse_format,
    refuse_missing_tools,
    refuse_nul,
    refuse_nul_within,
    sampling,
    stop_strings,
    validated,
)
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Message, Request, Sampling, Tool, ToolCall, ToolChoice

_ROLES: Mapping[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(Spoken):
    """`include_usage` and `logprobs` say what the answer is to tell besides."""

    include_usage: bool
    logprobs: bool

    def events(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> StreamWriter:
        return ChatStream(envelope, answer, self, renderer)

    def whole(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> bytes:
        return whole(envelope, answer, self, renderer)


class _Function(Wire):
    name: str = Field(min_length=1, max_length=256)
    arguments: str = ""


class _ToolCall(Wire):
    id: str = ""
    type: Literal["function"] = "function"
    function: _Function


class _ChatMessage(Wire):
    role: str
    content: str | Items[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Items[_ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class _ToolFunction(Wire):
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _ChatTool(Wire):
    type: Literal["function"]
    function: _ToolFunction


class _NamedFunction(Wire):
    name: str


class _ChatNamedTool(Wire):
    type: Literal["function"]
    function: _NamedFunction


class _ResponseFormat(Wire):
    type: str


class _StreamOptions(Wire):
    include_usage: bool = False


class ChatBody(Wire):
    model: str = Field(default="", max_length=256)
    messages: Items[_ChatMessage] = Field(min_length=1)
    tools: Items[_ChatTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | _ChatNamedTool | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = None
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=100)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = Field(default=None, max_length=1024)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | Items[str] | None = None
    n: int | None = Field(default=None, ge=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    response_format: _ResponseFormat | None = None


def parse(raw: bytes, limits: Limits, model: str) -> ChatRequest:
    """Reads one body for the served `model`; every mistake in it is a `RequestError` that names the field."""
    body = read_body(raw, limits, "messages")
    wire = validated(ChatBody, body)
    _refuse_unsupported(wire)
    refuse_nul([wire.model, *(t.function.name for t in wire.tools or ())], "model" if "\x00" in wire.model else "tools")
    stream = bool(wire.stream)
    return ChatRequest(
        request=_request(wire, limits, model),
        body=body,
        stream=stream,
        include_usage=stream and wire.stream_options is not None and wire.stream_options.include_usage,
        logprobs=bool(wire.logprobs),
    )


def _request(wire: ChatBody, limits: Limits, model: str) -> Request:
    tool_choice: ToolChoice = "auto"
    forced = None
    if isinstance(wire.tool_choice, _ChatNamedTool):
        tool_choice, forced = "required", wire.tool_choice.function.name
    elif wire.tool_choice is not None:
        tool_choice = wire.tool_choice
    tools = tuple(
        Tool(name=t.function.name, description=t.function.description or "", parameters=t.function.parameters or {})
        for t in wire.tools or ()
    )
    refuse_missing_tools(tool_choice, tools)
    if wire.n is not None and wire.n > limits.max_choices:
        raise RequestError(f"n is {wire.n}; at most {limits.max_choices} choices are made", param="n")
    try:
        return Request(
            messages=tuple(_message(m, f"messages.{i}", model) for i, m in enumerate(wire.messages)),
            tools=tools,
            tool_choice=tool_choice,
            forced_tool=forced,
            parallel_tool_calls=wire.parallel_tool_calls is not False,
            sampling=_sampling(wire, limits),
            stop=stop_strings(wire.stop, "stop"),
            num_choices=wire.n or 1,
            model=wire.model,
        )
    except ValueError as error:
        raise RequestError(str(error)) from None


def _sampling(wire: ChatBody, limits: Limits) -> Sampling:
    asked = wire.max_completion_tokens if wire.max_completion_tokens is not None else wire.max_tokens
    given = {
        "temperature": wire.temperature,
        "top_p": wire.top_p,
        "top_k": None if wire.top_k is None else max(0, wire.top_k),  # vLLM clients write -1 for "off"
        "min_p": wire.min_p,
        "repetition_penalty": wire.repetition_penalty,
        "presence_penalty": wire.presence_penalty,
        "frequency_penalty": wire.frequency_penalty,
        "logit_bias": _logit_bias(wire.logit_bias),
        "seed": wire.seed,
        "top_logprobs": wire.top_logprobs,
    }
    return sampling(limits, asked, "max_tokens", given)


def _logit_bias(raw: Mapping[str, float] | None) -> dict[int, float] | None:
    if raw is None:
        return None
    if not all(token.isascii() and token.isdigit() and len(token) < 10 for token in raw):
        raise RequestError("logit_bias maps token ids to numbers", param="logit_bias")
    if not all(-100 <= bias <= 100 for bias in raw.values()):
        raise RequestError("logit_bias values must lie in [-100, 100]", param="logit_bias")
    return {int(token): bias for token, bias in raw.items()}


def _message(wire: _ChatMessage, param: str, model: str) -> Message:
    role = _ROLES.get(wire.role)
    if role is None:
        raise RequestError(f"unknown role {wire.role[:40]!r}; one of {', '.join(_ROLES)}", param=f"{param}.role")
    content = (
        wire.content if isinstance(wire.content, str) else joined_text(wire.content or (), f"{param}.content", model)
    )
    message = Message(
        role=role,
        content=content,
        reasoning=wire.reasoning_content or wire.reasoning or "",
        tool_calls=tuple(
            ToolCall(id=c.id, name=c.function.name, arguments=c.function.arguments) for c in wire.tool_calls or ()
        ),
        tool_call_id=wire.tool_call_id,
        name=wire.name,
    )
    refuse_nul_within(message, f"{param}.content")
    return message


def _refuse_unsupported(wire: ChatBody) -> None:
    if wire.response_format is not None:
        refuse_format(wire.response_format.type, "response_format")
    if wire.top_logprobs and not wire.logprobs:
        raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")

"""An Anthropic Messages body to a `Request`.

It knows the wire and nothing else: no session, no engine, no store. Fields that we do not use are ignored, as clients
send many; content that we cannot show to the model is refused by name rather than dropped.

    system, and messages with role system     system messages, without blocks that vary from request to request
    tool_result blocks of a user              tool messages, before what the user says in the same message
    text blocks of a user                     one user message, a line each
    thinking, text and tool_use blocks        one assistant message; its texts are the parts of one text
    the record of a tool that Anthropic ran   nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import Field

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.dialects.messages.answer import MessagesStream, whole
from openclaw_rl.gateway.api.dialects.spoken import Envelope, Limits, Spoken, SpokenAnswer, StreamWriter
from openclaw_rl.gateway.api.dialects.wire import (
    Items,
    Wire,
    part_text,
    read_body,
    refuse_missing_tools,
    refuse_nul,
    refuse_nul_within,
    sampling,
    stop_strings,
    validated,
)
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Message, Request, Sampling, Tool, ToolCall, ToolChoice

_Block = tuple[str, Mapping[str, Any]]
"""A content block, and where in the body it stands."""

_BILLING = "x-anthropic-billing-header"
"""Claude Code opens its system prompt with such a block; its hash is another one in every request."""

_HOSTED_BLOCKS = ("server_tool_use", "mcp_tool_use", "tool_reference")
"""With them belong the results of such tools, `web_search_tool_result` and the like."""

_TOOL_CHOICES: Mapping[str, ToolChoice] = {"auto": "auto", "none": "none", "any": "required", "tool": "required"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRequest(Spoken):
    """A request that wants to be told no more than its answer."""

    def events(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> StreamWriter:
        return MessagesStream(envelope, answer, self.request, renderer)

    def whole(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> bytes:
        return whole(envelope, answer, self.request, renderer)


class _AnthropicMessage(Wire):
    role: Literal["user", "assistant", "system"]
    content: str | Items[dict[str, Any]]


class _Thinking(Wire):
    thinking: str


class _ToolUse(Wire):
    id: str
    name: str = Field(min_length=1, max_length=256)
    input: dict[str, Any]


class _ToolResult(Wire):
    tool_use_id: str
    content: str | Items[dict[str, Any]] | None = None
    is_error: bool | None = None


class _AnthropicTool(Wire):
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    input_schema: dict[str, Any]


class _AnthropicToolChoice(Wire):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class CountBody(Wire):
    """What the model is shown; the whole body of a question for its length."""

    model: str = Field(default="", max_length=256)
    messages: Items[_AnthropicMessage] = Field(min_length=1)
    system: str | Items[dict[str, Any]] | None = None
    tools: Items[dict[str, Any]] | None = None
    tool_choice: _AnthropicToolChoice | None = None


class MessagesBody(CountBody):
    max_tokens: int
    stop_sequences: Items[str] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = None
    stream: bool | None = None


def parse(raw: bytes, limits: Limits, model: str) -> MessagesRequest:
    """Reads one body for the served `model`; every mistake in it is a `RequestError` that names the field."""
    body = read_body(raw, limits, "messages")
    wire = validated(MessagesBody, body)
    given = {
        "temperature": wire.temperature,
        "top_p": wire.top_p,
        "top_k": None if wire.top_k is None else max(0, wire.top_k),
    }
    sampled = sampling(limits, wire.max_tokens, "max_tokens", given)
    stop = stop_strings(wire.stop_sequences, "stop_sequences")
    return MessagesRequest(request=_request(wire, sampled, stop, model), body=body, stream=bool(wire.stream))


def parse_count(raw: bytes, limits: Limits, model: str) -> Request:
    """The request that a body of `count_tokens` asks about. Nothing is to be sampled for it."""
    wire = validated(CountBody, read_body(raw, limits, "messages"))
    return _request(wire, Sampling(max_tokens=1), (), model)


def _request(wire: CountBody, sampled: Sampling, stop: tuple[str, ...], model: str) -> Request:
    choice = wire.tool_choice or _AnthropicToolChoice(type="auto")
    if choice.type == "tool" and not choice.name:
        raise RequestError("say which tool", param="tool_choice.name")
    tools = tuple(_tools(wire.tools or ()))
    refuse_missing_tools(_TOOL_CHOICES[choice.type], tools)
    refuse_nul([wire.model], "model")
    refuse_nul((tool.name for tool in tools), "tools")
    messages = _messages("system", wire.system or (), "system", model)
    for i, message in enumerate(wire.messages):
        messages += _messages(message.role, message.content, f"messages.{i}.content", model)
    try:
        return Request(
            messages=tuple(messages),
            tools=tools,
            tool_choice=_TOOL_CHOICES[choice.type],
            forced_tool=choice.name if choice.type == "tool" else None,
            parallel_tool_calls=not choice.disable_parallel_tool_use,
            sampling=sampled,
            stop=stop,
            model=wire.model,
        )
    except ValueError as error:
        raise RequestError(str(error)) from None


def _tools(raw: Iterable[Mapping[str, Any]]) -> Iterable[Tool]:
    """The tools that the client runs. Those with a type of their own are Anthropic's, and nobody here has them."""
    for i, tool in enumerate(raw):
        if tool.get("type") in (None, "custom"):
            wire = validated(_AnthropicTool, tool, f"tools.{i}")
            yield Tool(name=wire.name, description=wire.description or "", parameters=wire.input_schema)


def _messages(
    role: Literal["user", "assistant", "system"], content: str | Iterable[Mapping[str, Any]], param: str, model: str
) -> list[Message]:
    """What one message of this dialect, whose content stands at `param`, is in ours. A string is one block of text."""
    blocks: list[_Block] = [(param, {"type": "text", "text": content})]
    if not isinstance(content, str):
        blocks = [(f"{param}.{i}", block) for i, block in enumerate(content) if not _is_hosted(block)]
    read = {"system": _system, "user": _user, "assistant": _assistant}[role]
    messages = read(blocks, model)
    for message in messages:
        refuse_nul_within(message, param)
    return messages


def _is_hosted(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    return kind in _HOSTED_BLOCKS or (isinstance(kind, str) and kind.endswith("_tool_result"))


def _system(blocks: Iterable[_Block], model: str) -> list[Message]:
    texts = [part_text(block, where, model) for where, block in blocks]
    kept = [text for text in texts if text and not text.startswith(_BILLING)]
    return [Message(role="system", content="\n".join(kept))] if kept else []


def _user(blocks: Iterable[_Block], model: str) -> list[Message]:
    results, texts = [], []
    for where, block in blocks:
        if block.get("type") == "tool_result":
            results.append(_result(block, where, model))
        else:
            texts.append(part_text(block, where, model))
    text = "\n".join(texts)
    return [*results, Message(role="user", content=text)] if text or not results else results


def _result(block: Mapping[str, Any], param: str, model: str) -> Message:
    wire = validated(_ToolResult, block, param)
    raw = wire.content or ""
    if isinstance(raw, str):
        content = raw
    else:
        parts = enumerate(raw)
        texts = [part_text(part, f"{param}.content.{i}", model) for i, part in parts if not _is_hosted(part)]
        content = "\n".join(texts)
    # A failure that says nothing is still one. What does say something is left as the tool wrote it.
    return Message(role="tool", content=content or ("Error" if wire.is_error else ""), tool_call_id=wire.tool_use_id)


def _assistant(blocks: Iterable[_Block], model: str) -> list[Message]:
    content = reasoning = ""
    calls = []
    for where, block in blocks:
        match block.get("type"):
            case "thinking":
                reasoning += validated(_Thinking, block, where).thinking
            case "redacted_thinking":  # only its author could read it
                pass
            case "tool_use":
                call = validated(_ToolUse, block, where)
                calls.append(ToolCall(id=call.id, name=call.name, arguments=orjson.dumps(call.input).decode()))
            case _:
                content += part_text(block, where, model)
    return [Message(role="assistant", content=content, reasoning=reasoning, tool_calls=tuple(calls))]

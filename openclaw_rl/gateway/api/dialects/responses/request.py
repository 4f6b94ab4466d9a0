"""A Responses body to a `Request`.

It knows the wire and nothing else: no session, no engine, no store. Fields that we do not use are ignored, as clients
send many; fields that we cannot honour are refused by name rather than dropped. Tools that OpenAI would run itself
(web search and the like) are not shown to the model: nobody here could run them.

    what stands in `input`                               what it becomes
    ---------------------------------------------------  ------------------------------------------------------------
    a string                                             one user message
    message                                              a message; `developer` is a system message
    reasoning, message of the assistant, calls in a row  one assistant message; the calls are those of one answer
    function_call_output, custom_tool_call_output        a tool message each
    the record of a tool that OpenAI ran or defined      nothing
    what OpenAI alone can read (compaction)              nothing
    item_reference, and whatever else                    refused: its text is not here
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import Field

from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, RequestError
from openclaw_rl.gateway.api.dialects.responses.answer import ResponsesStream, ResponsesWishes, refused, whole
from openclaw_rl.gateway.api.dialects.responses.names import (
    ResponseName,
    free_form_arguments,
    free_form_tool,
    unsealed,
    within_namespace,
)
from openclaw_rl.gateway.api.dialects.spoken import Continuing, Envelope, Limits, SpokenAnswer, StreamWriter
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
    validated,
)
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Json, Message, Request, Tool, ToolCall, ToolChoice, Turn

_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_HOSTED_ITEMS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call"),
    *("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
    *("local_shell_call", "local_shell_call_output", "compaction", "compaction_summary"),
)
_STATEFUL = ("background", "conversation", "prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest(Continuing):
    """`previous` names the response that this one goes on with."""

    wishes: ResponsesWishes
    previous: ResponseName | None

    def after(self, turn: Turn) -> Self:
        """The instructions are those of this request: OpenAI does not inherit them either."""
        assert self.previous is not None
        own = self.request.messages
        start = 1 if self.wishes.instructed else 0
        earlier = turn.messages[1:] if self.previous.instructed else turn.messages
        messages = (*own[:start], *earlier, turn.message, *own[start:])
        return replace(self, request=replace(self.request, messages=messages))

    def events(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> StreamWriter:
        return ResponsesStream(envelope, answer, self.wishes, renderer)

    def whole(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> bytes:
        return whole(envelope, answer, self.wishes, renderer)

    def refusal(self, envelope: Envelope, message: str, code: str | None) -> bytes | None:
        """Codex makes a conversation shorter when a stream says that it is too long, and gives up on an HTTP error."""
        if not self.stream or code != CONTEXT_LENGTH_EXCEEDED:
            return None
        return refused(envelope, self.wishes, message, code)


class _Message(Wire):
    role: str
    content: str | Items[dict[str, Any]] | None = None


class _FunctionCall(Wire):
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1, max_length=256)
    namespace: str | None = Field(default=None, max_length=256)
    arguments: str


class _CustomCall(Wire):
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1, max_length=256)
    namespace: str | None = Field(default=None, max_length=256)
    input: str


class _CallOutput(Wire):
    call_id: str = Field(min_length=1)
    output: str | Items[dict[str, Any]]


class _Reasoning(Wire):
    summary: Items[dict[str, Any]] | None = None
    content: Items[dict[str, Any]] | None = None
    encrypted_content: str | None = None


class _Grammar(Wire):
    type: str
    syntax: str = ""
    definition: str = ""


class _Tool(Wire):
    type: str
    name: str = Field(default="", max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    format: _Grammar | None = None
    tools: Items[_Tool] | None = None


class _NamedTool(Wire):
    name: str = ""
    namespace: str | None = None


class _ToolChoice(_NamedTool):
    type: str
    mode: Literal["auto", "required"] = "auto"
    tools: Items[_NamedTool] | None = None


class _ReasoningWish(Wire):
    effort: str | None = None
    summary: str | None = None


class _Format(Wire):
    type: str


class _Text(Wire):
    format: _Format | None = None


class ResponsesBody(Wire):
    model: str = Field(default="", max_length=256)
    input: str | Items[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Items[_Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    reasoning: _ReasoningWish | None = None
    text: _Text | None = None
    include: Items[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None


def parse(raw: bytes, limits: Limits, model: str) -> ResponsesRequest:
    """Reads one body for the served `model`; every mistake in it is a `RequestError` that names the field."""
    body = read_body(raw, limits, "input")
    wire = validated(ResponsesBody, body)
    _refuse_unsupported(wire, body)
    refuse_nul([wire.model], "model")
    request = _request(wire, limits, model)
    include = wire.include or ()
    wishes = ResponsesWishes(
        echo=_echo(wire, body, request),
        tools=request.tools,
        logprobs="message.output_text.logprobs" in include or bool(wire.top_logprobs),
        sealed="reasoning.encrypted_content" in include,
        summary=wire.reasoning is not None and wire.reasoning.summary not in (None, "none"),
        instructed=bool(wire.instructions),
    )
    previous = None
    if wire.previous_response_id is not None:
        previous = ResponseName.parse(wire.previous_response_id, "previous_response_id")
    return ResponsesRequest(
        request=request,
        body=body,
        stream=bool(wire.stream),
        follows=None if previous is None else previous.turn_id,
        wishes=wishes,
        previous=previous,
    )


def _request(wire: ResponsesBody, limits: Limits, model: str) -> Request:
    tools = tuple(_tools(wire.tools or (), "tools"))
    tools, tool_choice, forced = _chosen(wire.tool_choice, tools)
    refuse_missing_tools(tool_choice, tools)
    given = {"temperature": wire.temperature, "top_p": wire.top_p, "top_logprobs": wire.top_logprobs}
    conversation = _conversation(wire.input, model)
    if not conversation:
        raise RequestError("input holds no message", param="input")
    instructions = [Message(role="system", content=wire.instructions)] if wire.instructions else []
    for message in instructions:
        refuse_nul_within(message, "instructions")
    try:
        return Request(
            messages=(*instructions, *conversation),
            tools=tools,
            tool_choice=tool_choice,
            forced_tool=forced,
            parallel_tool_calls=wire.parallel_tool_calls is not False,
            sampling=sampling(limits, wire.max_output_tokens, "max_output_tokens", given),
            model=wire.model,
            retrievable=wire.store is not False,
        )
    except ValueError as error:
        raise RequestError(str(error), param="tool_choice" if forced else None) from None


def _conversation(raw: str | list[dict[str, Any]], model: str) -> list[Message]:
    if isinstance(raw, str):
        message = Message(role="user", content=raw)
        refuse_nul_within(message, "input")
        return [message]
    items = _Items(model)
    for i, item in enumerate(raw):
        items.add(item, f"input.{i}")
    return items.messages


@dataclass(slots=True)
class _EarlierAnswer:
    """An assistant message in the making."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def may_be_followed_by_words(self) -> bool:
        """Whether more words still belong to it: as long as nothing was said, or calls wait for their results."""
        return not self.texts or bool(self.calls)


class _Items:
    """Items as they come, folded into messages."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._messages: list[Message] = []
        self._answer: _EarlierAnswer | None = None

    @property
    def messages(self) -> list[Message]:
        self._end_answer()
        return self._messages

    def add(self, item: dict[str, Any], at: str) -> None:
        kind = item.get("type", "message" if "role" in item else "item_reference")
        match kind:
            case "message" | None:
                self._add_message(validated(_Message, item, at), at)
            case "reasoning":
                thought = self._thought(validated(_Reasoning, item, at), at)
                refuse_nul([thought], at)
                self._answer_for_words().thoughts.append(thought)
            case "function_call":
                call = validated(_FunctionCall, item, at)
                self._add_call(call.call_id, within_namespace(call.namespace, call.name), call.arguments, at)
            case "custom_tool_call":
                custom = validated(_CustomCall, item, at)
                arguments = free_form_arguments(custom.input)
                self._add_call(custom.call_id, within_namespace(custom.namespace, custom.name), arguments, at)
            case "function_call_output" | "custom_tool_call_output":
                result = validated(_CallOutput, item, at)
                content = self._text(result.output, f"{at}.output")
                self._append(Message(role="tool", content=content, tool_call_id=result.call_id), f"{at}.output")
            case "item_reference":
                raise RequestError(
                    "items cannot be sent by reference; send them whole, or go on with previous_response_id",
                    param=at,
                    code="unsupported_item",
                )
            case _ if kind not in _HOSTED_ITEMS:
                raise RequestError(
                    f"unknown item type {str(kind)[:40]!r}; messages, reasoning, calls and their outputs are accepted",
                    param=f"{at}.type",
                    code="unsupported_item",
                )

    def _add_message(self, wire: _Message, at: str) -> None:
        role = _ROLES.get(wire.role)
        if role is None:
            raise RequestError(f"unknown role {wire.role[:40]!r}; one of {', '.join(_ROLES)}", param=f"{at}.role")
        content = self._text(wire.content or "", f"{at}.content")
        if role == "assistant":
            refuse_nul([content], f"{at}.content")
            self._answer_for_words().texts.append(content)
        else:
            self._append(Message(role=role, content=content), f"{at}.content")

    def _add_call(self, call_id: str, name: str, arguments: str, at: str) -> None:
        refuse_nul([call_id, name, arguments], at)
        self._answer = self._answer or _EarlierAnswer()
        self._answer.calls.append(ToolCall(id=call_id, name=name, arguments=arguments))

    def _append(self, message: Message, param: str) -> None:
        refuse_nul_within(message, param)
        self._end_answer()
        self._messages.append(message)

    def _answer_for_words(self) -> _EarlierAnswer:
        if self._answer is None or not self._answer.may_be_followed_by_words():
            self._end_answer()
            self._answer = _EarlierAnswer()
        return self._answer

    def _end_answer(self) -> None:
        if self._answer is not None:
            said = self._answer
            self._messages.append(
                Message(
                    role="assistant",
                    content="".join(said.texts),
                    reasoning="".join(said.thoughts),
                    tool_calls=tuple(said.calls),
                )
            )
            self._answer = None

    def _thought(self, wire: _Reasoning, at: str) -> str:
        """What the client still has of it; what we sealed ourselves is the most exact."""
        return (
            unsealed(wire.encrypted_content)
            or self._text(wire.content or "", f"{at}.content")
            or self._text(wire.summary or "", f"{at}.summary")
        )

    def _text(self, content: str | list[dict[str, Any]], param: str) -> str:
        return content if isinstance(content, str) else joined_text(content, param, self._model)


def _tools(wire: Iterable[_Tool], param: str, namespace: str | None = None) -> Iterator[Tool]:
    for i, tool in enumerate(wire):
        at = f"{param}.{i}"
        if tool.type not in ("function", "custom", "namespace"):
            continue
        if not tool.name:
            raise RequestError(f"{at}.name: a tool needs a name", param=f"{at}.name")
        refuse_nul([tool.name], f"{at}.name")
        name = within_namespace(namespace, tool.name)
        description = tool.description or ""
        if tool.type == "function":
            yield Tool(name=name, description=description, parameters=tool.parameters or {})
        elif tool.type == "custom":
            yield free_form_tool(name, description + _grammar(tool.format))
        elif namespace is None:
            yield from _tools(tool.tools or (), f"{at}.tools", tool.name)


def _grammar(wire: _Grammar | None) -> str:
    """What a model that is free to write anything is told of the form that the tool expects."""
    if wire is None or not wire.definition:
        return ""
    return f"\n\nThe input follows this {wire.syntax} grammar:\n{wire.definition}"


def _chosen(
    choice: str | _ToolChoice | None, tools: tuple[Tool, ...]
) -> tuple[tuple[Tool, ...], ToolChoice, str | None]:
    """The tools that may be called, whether one must be, and which."""
    match choice:
        case None | "auto":
            return tools, "auto", None
        case "none":
            return tools, "none", None
        case "required":
            return tools, "required", None
        case _ToolChoice(type="function" | "custom"):
            return tools, "required", within_namespace(choice.namespace, choice.name)
        case _ToolChoice(type="allowed_tools", mode=mode):
            allowed = {within_namespace(tool.namespace, tool.name) for tool in choice.tools or ()}
            return tuple(tool for tool in tools if tool.name in allowed), mode, None
        case _:
            kind = choice.type if isinstance(choice, _ToolChoice) else str(choice)
            raise RequestError(
                f"tool_choice {kind[:40]!r} is not served; offer a function or custom tool", param="tool_choice"
            )


def _echo(wire: ResponsesBody, body: Mapping[str, Json], request: Request) -> dict[str, Json]:
    """What an answer repeats of its request."""
    reasoning = wire.reasoning or _ReasoningWish()
    return {
        "instructions": wire.instructions,
        "previous_response_id": wire.previous_response_id,
        "tools": body.get("tools") or [],
        "tool_choice": body.get("tool_choice") or "auto",
        "parallel_tool_calls": request.parallel_tool_calls,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "max_output_tokens": wire.max_output_tokens,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "text": {"format": {"type": "text"}},
        "truncation": "disabled",
        "metadata": wire.metadata or {},
        "store": wire.store is not False,
    }


def _refuse_unsupported(wire: ResponsesBody, body: Mapping[str, Json]) -> None:
    if wire.text is not None and wire.text.format is not None:
        refuse_format(wire.text.format.type, "text.format")
    for name in _STATEFUL:
        if body.get(name):
            raise RequestError(
                f"{name} is not served; send the conversation itself, or previous_response_id",
                param=name,
                code="unsupported_parameter",
            )

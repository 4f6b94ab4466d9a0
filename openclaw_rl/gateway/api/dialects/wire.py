"""How bodies are read, whatever the dialect: JSON with limits, fields that name themselves when they are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, FailFast, ValidationError

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.api.dialects.counting import has_more_values
from openclaw_rl.gateway.api.dialects.spoken import Limits
from openclaw_rl.types import Json, Message, Sampling, Tool, ToolChoice

TEXT_PARTS = ("text", "refusal", "input_text", "output_text", "summary_text", "reasoning_text")
MEDIA_PARTS = (
    "image_url",
    "image",
    "input_image",
    "input_audio",
    "audio",
    "video_url",
    "file",
    "input_file",
    "document",
)

_MAX_ERROR_CHARS = 1000


class Wire(BaseModel):
    """A JSON object of a client: fields that we do not use are ignored, as clients send many."""

    model_config = ConfigDict(extra="ignore", strict=True)


W = TypeVar("W", bound=Wire)
T = TypeVar("T")


class _FirstMistake(FailFast):
    """`FailFast` in a union of types, which are told apart by their hashes."""

    def __hash__(self) -> int:
        return hash(self.fail_fast)


Items = Annotated[list[T], _FirstMistake()]
"""A list whose first mistake is enough: a client is told of one."""


def read_object(raw: bytes, max_values: int) -> dict[str, Json]:
    """A JSON object of no more than about `max_values` values."""
    if has_more_values(raw, max_values):
        message = f"the body holds more than {max_values} JSON values; send fewer of them"
        raise RequestError(message, code="too_many_values")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    return body


def read_body(raw: bytes, limits: Limits, conversation: str) -> dict[str, Json]:
    """The body as a JSON object, not nested too deep, and with no more than the allowed number of messages in the
    field `conversation`, and of tools."""
    body = read_object(raw, limits.max_values)
    for name, what, most in ((conversation, "messages", limits.max_messages), ("tools", "tools", limits.max_tools)):
        listed = body.get(name)
        if isinstance(listed, list) and len(listed) > most:
            raise RequestError(f"{len(listed)} {what}; at most {most} are accepted", param=name)
    for name, value in body.items():
        if _depth(value, limits.max_nesting) > limits.max_nesting:
            raise RequestError(f"{name} is nested more than {limits.max_nesting} deep", param=name)
    return body


def validated(form: type[W], body: Mapping[str, Json], within: str = "") -> W:
    """The body in this form; the first field that does not fit is named. `within` is where in a request it stands."""
    try:
        return form.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # pydantic adds the names of the alternatives it tried
        names = [str(p) for p in first["loc"] if isinstance(p, int) or (p.isidentifier() and p[0] != "_")]
        param = ".".join([within, *names] if within else names)
        raise RequestError(f"{param}: {first['msg']}", param=param) from None


def joined_text(parts: Iterable[Mapping[str, Any]], param: str, model: str) -> str:
    """The text of content parts, a line each; what is no text is refused by name."""
    return "\n".join(part_text(part, f"{param}.{i}", model) for i, part in enumerate(parts))


def part_text(part: Mapping[str, Any], param: str, model: str) -> str:
    """The text of one content part, which stands at `param`."""
    kind = part.get("type")
    text = part.get("refusal" if kind == "refusal" else "text")
    if kind in TEXT_PARTS:
        if not isinstance(text, str):
            raise RequestError("a text part needs a string", param=f"{param}.text")
        return text
    if kind in MEDIA_PARTS:
        raise RequestError(
            f"{model} reads text only, not {kind!r} parts; send text, or serve a model that can",
            param=param,
            code="unsupported_content",
        )
    raise RequestError("unknown content part type; text parts are accepted", param=f"{param}.type")


def refuse_nul(texts: Iterable[str], param: str) -> None:
    if any("\x00" in text for text in texts):
        raise RequestError("text must not hold the NUL character; remove it or escape it", param=param)


def refuse_nul_within(message: Message, param: str) -> None:
    """The same for every text of a message."""
    texts = [message.content, message.reasoning, message.name or "", message.tool_call_id or ""]
    texts += [text for call in message.tool_calls for text in (call.id, call.name, call.arguments)]
    refuse_nul(texts, param)


def refuse_missing_tools(choice: ToolChoice, tools: Sequence[Tool]) -> None:
    if choice == "required" and not tools:
        raise RequestError("tool_choice asks for a tool call but there are no tools", param="tool_choice")


def refuse_format(kind: str, param: str) -> None:
    """An answer in any form but plain text."""
    if kind != "text":
        raise RequestError(
            f"{param} {kind[:40]!r} needs constrained decoding, which this engine does not do; ask for JSON in the "
            "prompt, or offer a tool with that schema and tool_choice",
            param=param,
            code="unsupported_parameter",
        )


def stop_strings(raw: str | Sequence[str] | None, param: str) -> tuple[str, ...]:
    stops = (raw,) if isinstance(raw, str) else tuple(raw or ())
    refuse_nul(stops, param)
    if len(stops) > 16 or not all(0 < len(s) <= 256 for s in stops):
        raise RequestError(f"{param} takes up to 16 strings of 1 to 256 characters", param=param)
    return stops


def sampling(limits: Limits, asked: int | None, param: str, given: Mapping[str, Any]) -> Sampling:
    """`asked` are the most tokens, as the field `param` says; what of `given` is None was not said."""
    if asked is not None and not 1 <= asked <= limits.max_tokens:
        raise RequestError(f"{param} must lie in [1, {limits.max_tokens}], got {asked}", param=param)
    said = {name: value for name, value in given.items() if value is not None}
    return Sampling(
        max_tokens=asked or limits.default_max_tokens or limits.max_tokens,
        **{"temperature": limits.default_temperature, **said},
    )


def clipped(message: str) -> str:
    """An error is short whatever it quotes: an answer must not echo a whole request."""
    return message if len(message) <= _MAX_ERROR_CHARS else message[:_MAX_ERROR_CHARS] + " …"


def _depth(value: Json, limit: int) -> int:
    """How deeply `value` is nested; stops counting just past `limit`."""
    depth, level = 0, [value]
    while level and depth <= limit:
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        depth += 1
    return depth

"""The two grammars of tool calls: JSON objects (Hermes, Qwen2.5, Qwen3) and XML tags (Qwen3-Coder, Qwen3.5).

Both read what stands between `<tool_call>` and `</tool_call>` and announce the call as soon as its name is complete.
JSON arguments are passed on as the very text that was sampled; XML parameters have no JSON text of their own, so it is
made from them, by the types that the tool's schema declares.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Mapping, Sequence

from openclaw_rl.render.source import QUOTE_OR_ESCAPE, Source, Steps
from openclaw_rl.types import AnswerEvent, Json, Tool, ToolArgumentsDelta, ToolCallStart

_BLANKS = " \t\r\n"
_STRUCTURE = re.compile(r'["{}\[\]<]')
_SCALAR = string.ascii_letters + string.digits + "+-."
_ALPHABET = string.ascii_letters + string.digits


def new_call_id() -> str:
    """A fresh id of letters and digits only, because some clients strip everything else from ids."""
    return "call" + "".join(secrets.choice(_ALPHABET) for _ in range(20))


class CallEvents:
    """The calls of one answer: numbers them, and holds arguments back until their call has a name."""

    def __init__(self, emit: Callable[[AnswerEvent], object], new_id: Callable[[], str]) -> None:
        self._emit = emit
        self._new_id = new_id
        self._index = -1
        self._waiting: list[str] = []
        self._announced: Callable[[], object] = lambda: None
        self.is_announced = False
        self.has_arguments = False

    def begin(self, announced: Callable[[], object]) -> None:
        """Another call may follow; `announced` is called when it is certain."""
        self._waiting = []
        self._announced = announced
        self.is_announced = self.has_arguments = False

    def announce(self, name: str) -> None:
        self._index += 1
        self.is_announced = True
        self._announced()
        self._emit(ToolCallStart(self._index, self._new_id(), name))
        for text in self._waiting:
            self._emit(ToolArgumentsDelta(self._index, text))

    def arguments(self, text: str) -> None:
        if not text:
            return
        self.has_arguments = True
        if self.is_announced:
            self._emit(ToolArgumentsDelta(self._index, text))
        else:
            self._waiting.append(text)


def json_call(source: Source, calls: CallEvents) -> Steps[None]:
    """`{"name": "x", "arguments": {…}}`, keys in either order; stops at the first thing that is not of this form."""
    yield from source.skip(_BLANKS)
    if not (yield from source.literal("{")):
        return
    more = True
    while more:
        yield from source.skip(_BLANKS)
        key = yield from source.string()
        yield from source.skip(_BLANKS)
        if key is None or not (yield from source.literal(":")):
            return
        yield from source.skip(_BLANKS)
        if key == '"name"' and not calls.is_announced:
            name = _string((yield from source.string()))
            if not name:
                return
            calls.announce(name)
        elif key in ('"arguments"', '"parameters"') and not calls.has_arguments:
            if not (yield from _json_value(source, calls.arguments)):
                return
        else:
            return
        yield from source.skip(_BLANKS)
        more = yield from source.literal(",")
    if (yield from source.literal("}")) and not calls.has_arguments:
        calls.arguments("{}")


def _json_value(source: Source, emit: Callable[[str], object]) -> Steps[bool]:
    """Emit a JSON value as it grows, exactly as written; False if it breaks off."""
    char = yield from source.char()
    if char == '"':
        literal = yield from source.string()
        if literal is None:
            emit(source.take(len(source.text) - source.at))
            return False
        emit(_unquoted(literal))
        return True
    if char in ("{", "["):
        return (yield from _json_container(source, emit))
    size = 0
    while True:
        while source.at + size < len(source.text) and source.text[source.at + size] in _SCALAR:
            size += 1
        if source.at + size < len(source.text) or source.is_ended:
            emit(source.take(size))
            return size > 0
        yield


def _json_container(source: Source, emit: Callable[[str], object]) -> Steps[bool]:
    depth = 0
    while True:
        found = _STRUCTURE.search(source.text, source.at)
        if found is None:
            emit(source.take(len(source.text) - source.at))
            if source.is_ended:
                return False
            yield
            continue
        emit(source.take(found.start() - source.at))
        if found.group() == "<":  # no JSON outside of strings: the closing tag came too early
            return False
        if found.group() == '"':
            if not (yield from _json_string(source, emit)):
                return False
            continue
        depth += 1 if found.group() in "{[" else -1
        emit(source.take(1))
        if depth == 0:
            return True


def _json_string(source: Source, emit: Callable[[str], object]) -> Steps[bool]:
    """Emit a string literal inside of a value as it grows."""
    emit(source.take(1))
    while True:
        found = QUOTE_OR_ESCAPE.search(source.text, source.at)
        emit(source.take((len(source.text) if found is None else found.start()) - source.at))
        if found is not None and found.group() == '"':
            emit(source.take(1))
            return True
        if len(source.text) - source.at >= 2:
            emit(source.take(2))
        elif source.is_ended:
            emit(source.take(len(source.text) - source.at))
            return False
        else:
            yield


def xml_call(source: Source, calls: CallEvents, tools: Sequence[Tool]) -> Steps[None]:
    """`<function=NAME>`, any number of `<parameter=KEY>VALUE</parameter>`, `</function>`."""
    yield from source.skip(_BLANKS)
    if not (yield from source.literal("<function=")):
        return
    name: list[str] = []
    if not (yield from source.until(">", name.append)) or not "".join(name).strip():
        return
    calls.announce("".join(name).strip())
    schema = _properties(tools, "".join(name).strip())
    separator = "{"
    yield from source.skip(_BLANKS)
    while (yield from source.literal("<parameter=")):
        key: list[str] = []
        value: list[str] = []
        if (yield from source.until(">", key.append)):
            yield from source.until("</parameter>", value.append)
        written = _xml_value("".join(value), schema.get("".join(key)))
        calls.arguments(f"{separator}{json.dumps(''.join(key), ensure_ascii=False)}: {written}")
        separator = ", "
        yield from source.skip(_BLANKS)
    if (yield from source.literal("</function>")):
        calls.arguments("}" if calls.has_arguments else "{}")


def _properties(tools: Sequence[Tool], name: str) -> Mapping[str, Json]:
    parameters = next((tool.parameters for tool in tools if tool.name == name), {})
    properties = parameters.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _xml_value(written: str, schema: Json) -> str:
    """The JSON text of a parameter: a string where the schema says so or where it is no JSON."""
    value = written.removeprefix("\n").removesuffix("\n")
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    types = declared if isinstance(declared, list) else [declared]
    is_string = "string" in types and not (value == "null" and "null" in types)
    return json.dumps(value, ensure_ascii=False) if is_string or _parsed(value) is None else value


def _string(literal: str | None) -> str:
    """What a JSON string literal says; empty if it is none."""
    text = None if literal is None else _parsed(literal)
    return text[0] if text else ""


def _unquoted(literal: str) -> str:
    """Arguments that came as a JSON string with an object inside are that object."""
    inner = _string(literal)
    return inner if inner.lstrip().startswith("{") and _parsed(inner) else literal


def _parsed(text: str) -> tuple[Json] | None:
    """The value of a JSON text, if it is one that every client can read."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is JSON to Python alone
    except (ValueError, RecursionError):
        return None
    return (value,)


def _refuse(constant: str) -> Json:
    raise ValueError(f"{constant} is no JSON")

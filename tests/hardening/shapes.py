"""Bodies that are legal, or nearly, and as much work as their size allows: for every route that takes one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from openclaw_rl.types import Json

TEXTS: dict[str, str] = {
    "one letter": "a",
    "blanks": " ",
    "digits": "1 2 3, ",
    "words": "The quick brown fox jumps over the lazy dog, and so on. ",
    "lines": "\n",
    "ideographs": "你好世界",
    "accents": "e\u0301",
    "emoji": "👩\u200d👩\u200d👧 ",
    "escapes": '"\\',
    "control tokens": "<|im_start|>",
    "open thoughts": "<think>",
    "open reminders": "<system-reminder>",
    "reminders": "<system-reminder>The user sent: x\n\naddress this message</system-reminder>",
    "run-time lines": "\nRuntime: session=a | sessionId=b | ",
    "clocks": "\nCurrent time: now\n\n",
    "heartbeats": "heartbeat reply respond answer return say ",
    "jobs": "a background task completed finished failed timed out ",
    "nudges": "the previous turn attempt reply response visible ",
    "events": "System: [2030-01-01 10:00] x\n",
    "orders": "your task is to write a a a a summary of the a a a ",
    "secret names": "password api_key token secret ",
    "keys that never end": "-----BEGIN PRIVATE KEY-----\n",
    "nearly keys": "sk-ant-a1 ghp_a1 eyJhbGciOi.eyJ ",
    "nearly addresses": "a.b@c.d-e@",
    "nearly numbers": "+41 79 4111 1111-1111 (079) ",
    "assignments": "password = = : 'x' \\\"",
}
"""What each of these rules, patterns and encodings might trip over, again and again."""

Message = dict[str, Any]
MESSAGES_PATH, RESPONSES_PATH = "/v1/messages", "/v1/responses"


def filled(text: str, num_chars: int) -> str:
    return (text * (num_chars // len(text) + 1))[:num_chars]


def conversation(path: str, messages: list[Message], **more: Any) -> Json:
    """The body of a route that answers."""
    field = "input" if path == RESPONSES_PATH else "messages"
    return {field: messages, **({} if path == RESPONSES_PATH else {"max_tokens": 4}), **more}


def tools(path: str, num: int, schema: Json) -> list[Json]:
    named = [{"name": f"tool_{i}", "description": "Does it."} for i in range(num)]
    match path:
        case "/v1/responses":
            return [{"type": "function", **tool, "parameters": schema} for tool in named]
        case "/v1/chat/completions":
            return [{"type": "function", "function": {**tool, "parameters": schema}} for tool in named]
        case _:
            return [{**tool, "input_schema": schema} for tool in named]


def long_texts(path: str, num_chars: int) -> Iterator[tuple[str, Json]]:
    """One text of this length, of every kind, said by a person; and by the model, which later histories show."""
    for name, text in TEXTS.items():
        said = filled(text, num_chars)
        messages = [{"role": "user", "content": "go on"}, {"role": "assistant", "content": said}]
        yield f"{name}, answered", conversation(path, [*messages, {"role": "user", "content": "and then?"}])
        yield name, conversation(path, [{"role": "user", "content": said}])


def many_messages(path: str, num: int, num_chars: int) -> Iterator[tuple[str, Json]]:
    """The most messages there may be, each of them for the rules of wording."""
    for name, text in TEXTS.items():
        said = filled(text, num_chars)
        yield f"many: {name}", conversation(path, [{"role": "user", "content": said}] * num)
    pairs = [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "NO_REPLY"}]
    yield "many: silence", conversation(path, pairs * (num // 2 - 1) + pairs[:1])
    system = {"role": "system", "content": "openclaw\nRuntime: session=a"}
    nearly = {"role": "user", "content": filled(TEXTS["heartbeats"], num_chars)}
    yield "many: OpenClaw's", conversation(path, [system, *[nearly] * (num - 1)])


def many_values(path: str, scale: int) -> Iterator[tuple[str, Json]]:
    """As many as are read, and then some."""
    parts = [{"type": "text", "text": ""}] * (40 // scale + 1)
    yield "parts", conversation(path, [{"role": "user", "content": parts}] * (1_200 // scale))
    yield "wrong parts", conversation(path, [{"role": "user", "content": [1] * (150_000 // scale)}])
    yield "wrong messages", conversation(path, [1] * 4_000)  # type: ignore[list-item]
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(60_000 // scale)}}
    message = [{"role": "user", "content": "hi"}]
    yield "a huge tool", conversation(path, message, tools=tools(path, 1, schema))
    yield "many tools", conversation(path, message, tools=tools(path, 1_000, {"type": "object", "properties": {}}))
    yield "metadata", conversation(path, message, metadata={f"k{i}": i for i in range(150_000 // scale)})


def raw(num_bytes: int) -> dict[str, bytes]:
    """What is no conversation at all, for every route that reads a body."""

    def many(piece: bytes, begin: bytes = b'{"messages":[', end: bytes = b"0]}") -> bytes:
        return begin + piece * ((num_bytes - len(begin) - len(end)) // len(piece)) + end

    return {
        "empty lists": many(b"[],"),
        "empty objects": many(b"{},"),
        "empty texts": many(b'"",'),
        "numbers": many(b"0,"),
        "long numbers": many(b"1234567890123456789.5e100,"),
        "members": many(b'"a":0,', b"{", b'"b":0}'),
        "open lists": many(b"[", b"", b""),
        "open objects": many(b'{"a":', b"", b""),
        "a text of signs": many(b",[{", b'{"text":"', b'"}'),
        "a text of escapes": many(b"\\u00e9", b'{"text":"', b'"}'),
        "a text of quotes": many(b'\\"', b'{"text":"', b'"}'),
        "a text that never ends": many(b"\\\\", b'{"text":"', b""),
        "no JSON": many(b"\xff", b"", b""),
        "nested": b'{"messages":' + b"[" * 60 + b"]" * 60 + b"}",
        "nested too deep": b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}",
    }


def bodies(path: str, *, scale: int) -> Iterator[tuple[str, bytes]]:
    """Conversations for a route that answers, `scale` times smaller than the limits allow."""
    made: tuple[Callable[[], Iterator[tuple[str, Json]]], ...] = (
        lambda: long_texts(path, 400_000 // scale),
        lambda: many_messages(path, 4_000, 500 // scale),
        lambda: many_values(path, scale),
    )
    for shapes in made:
        for name, body in shapes():
            yield name, json.dumps(body, ensure_ascii=False).encode()

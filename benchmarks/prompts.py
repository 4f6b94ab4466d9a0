"""What the benchmarks say: prose to requests, for the gateway as chat and for the engine as the same prompt's ids.

No two messages are alike, so that no answer is a replay and no text comes from a cache that a real client would miss.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pydoc_data.topics import topics
from random import Random

import orjson

from openclaw_rl.config import load_config
from openclaw_rl.engine.worker.wire import dumps, request_to_json
from openclaw_rl.model.files import resolve_model
from openclaw_rl.render import load_renderer
from openclaw_rl.types import GenerateRequest, Json, Message, Sampling

KIB = 1024
PROSE = "\n".join(topics.values())
"""450 KiB of English with code in it that comes with Python. A KiB of it is about 250 tokens."""

REPLY = "Done, and all tests pass now."
STREAMED = PROSE[:4000]
SCRIPT = [{"match": "^Stream ", "reply": STREAMED}, {"match": "^", "reply": REPLY}]
"""The engine's answers: about 1,000 tokens where a long stream is wanted, 8 elsewhere."""

_numbers = count(1)
_random = Random(0)


def prose(size: int) -> str:
    """About `size` bytes of text that no request has had before."""
    begin = _random.randrange(len(PROSE) - size)
    return f"{next(_numbers)}: {PROSE[begin : begin + size]}"


def said(text: str) -> Message:
    return Message(role="user", content=text)


SYSTEM_PROMPT = Message(role="system", content=PROSE[:3584])


def opening() -> list[Message]:
    """4 KiB, as an agent opens a conversation: its system prompt, the same each time, and 512 bytes that are new."""
    return [SYSTEM_PROMPT, said(prose(512))]


def streamed_opening() -> list[Message]:
    """The same, asking for the long answer."""
    return [SYSTEM_PROMPT, said(f"Stream {prose(505)}")]


class Chat:
    """Requests to the gateway, as the bytes that go over the wire."""

    def __init__(self, key: str) -> None:
        self._head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {key}\r\nContent-Length: "
        ).encode()
        self._histories: dict[int, list[Message]] = {}

    def request(self, messages: Sequence[Message], *, max_tokens: int = 64, stream: bool = False) -> bytes:
        wire: list[Json] = [{"role": message.role, "content": message.content} for message in messages]
        body = orjson.dumps({"model": "m", "messages": wire, "max_tokens": max_tokens, "stream": stream})
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)

    def next_turn(self, connection: int, *, new: int, most: int) -> bytes:
        """The conversation of a connection, resent with `new` more bytes; beyond `most` it begins again."""
        history = self._histories.get(connection)
        if history is None or sum(len(message.content) for message in history) > most:
            history = [SYSTEM_PROMPT]
        else:
            history = [*history, Message(role="assistant", content=REPLY)]
        self._histories[connection] = history = [*history, said(prose(new))]
        return self.request(history)


class Direct:
    """Requests to the engine itself, as bytes: the ids of the prompts that the gateway renders."""

    def __init__(self) -> None:
        model = resolve_model(load_config(env=os.environ).config.model)
        self._renderer = load_renderer(model.tokenizer_path, model.name)

    def request(self, messages: Sequence[Message], *, max_tokens: int = 64, stream: bool = False) -> bytes:
        generate = GenerateRequest(
            request_id=f"r-{next(_numbers)}",
            token_ids=self._renderer.render(messages, (), {}),
            sampling=Sampling(max_tokens=max_tokens),
            stop_token_ids=self._renderer.stop_token_ids,
        )
        body = dumps(request_to_json(generate, stream=stream))
        return b"POST /inference/v1/generate HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

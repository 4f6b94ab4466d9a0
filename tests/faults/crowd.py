"""Clients that chat all at once, remember what they were told, and ask again what broke off, byte for byte.

Written on aiohttp rather than a client library: a broken connection must show itself as what it is.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.server import Server

NUM_CLIENTS = 20
TURNS_A_CHAT = 3
BROKEN = (aiohttp.ClientError, ConnectionError)

_WORDS = [
    "plain",
    "naïve",
    "日本語",
    "🧪🦞",
    "<|im_end|>",
    "tab\there",
    '"quoted"',
    "back\\slash",
    "κόσμε",
    "two\nlines",
]


@dataclass(slots=True)
class Ask:
    """One request. `turn_ids` holds what each attempt's header said; `text` is the answer, once its end was seen."""

    body: bytes
    messages: list[dict[str, str]]
    stream: bool
    expected: str
    turn_ids: list[str] = field(default_factory=list)
    text: str | None = None


@dataclass(slots=True)
class Chat:
    """A conversation without any session header: the gateway has to recognise it by what was said."""

    name: str
    dice: random.Random
    asks: list[Ask] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return len(self.asks) == TURNS_A_CHAT and self.asks[-1].text is not None

    def next_ask(self) -> Ask:
        """The one that broke off, or the next one."""
        if self.asks and self.asks[-1].text is None:
            return self.asks[-1]
        messages = list(self.asks[-1].messages) if self.asks else []
        if self.asks:
            messages.append({"role": "assistant", "content": self.asks[-1].text or ""})
        said = f"{self.name} {len(self.asks)} " + " ".join(self.dice.choices(_WORDS, k=14))
        messages.append({"role": "user", "content": said})
        stream = self.dice.random() < 0.75
        body = json.dumps({"messages": messages, "stream": stream}).encode()
        self.asks.append(Ask(body, messages, stream, echo(said)))
        return self.asks[-1]


class Crowd:
    """Always `NUM_CLIENTS` chats at once; one that is over makes place for a new one."""

    def __init__(self, seed: int) -> None:
        self.chats: list[Chat] = []
        self._dice = random.Random(seed)
        self._going: list[Chat] = [self._new_chat() for _ in range(NUM_CLIENTS)]

    @property
    def num_answered(self) -> int:
        return sum(ask.text is not None for chat in self.chats for ask in chat.asks)

    async def talk(self, server: Server, *, until: asyncio.Event, survives: bool) -> None:
        """Everybody talks until `until` is set, and then finishes what he began; or, unless the server has to
        survive, until the connection breaks.
        """
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, headers=server.headers, timeout=timeout) as session:
            url = f"{server.url}/v1/chat/completions"
            everybody = (self._one(place, session, url, until, survives) for place in range(NUM_CLIENTS))
            await asyncio.gather(*everybody)

    async def _one(
        self, place: int, session: aiohttp.ClientSession, url: str, until: asyncio.Event, survives: bool
    ) -> None:
        while not until.is_set():
            try:
                await send(session, url, self._going[place].next_ask())
            except BROKEN:
                if survives:
                    raise
                return
            if self._going[place].over:
                self._going[place] = self._new_chat()

    def _new_chat(self) -> Chat:
        chat = Chat(f"chat-{len(self.chats)}", random.Random(self._dice.random()))
        self.chats.append(chat)
        return chat


async def send(session: aiohttp.ClientSession, url: str, ask: Ask) -> None:
    """One attempt at a request; sets `ask.text` only if the end of the answer arrived."""
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=ask.body, headers=headers) as response:
        assert response.status == 200, f"{response.status}: {await response.text()}"
        ask.turn_ids.append(response.headers["X-OpenClaw-RL-Turn"])
        if not ask.stream:
            ask.text = (await response.json())["choices"][0]["message"]["content"]
            return
        ask.text = _streamed((await response.read()).decode())


def _streamed(events: str) -> str:
    """The text of a stream that ended as a stream has to end."""
    *chunks, done, rest = events.split("\n\n")
    assert (done, rest) == ("data: [DONE]", ""), f"the stream ended orderly, but with {events[-300:]!r}"
    parsed = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks if not chunk.startswith(":")]
    return text_of(parsed)


def text_of(chunks: Sequence[dict[str, Any]]) -> str:
    """What the content deltas of the first choice add up to."""
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk.get("choices"))


def echo(said: str) -> str:
    """What the scripted engine answers without a script."""
    return f"You said: {said[:200]}"

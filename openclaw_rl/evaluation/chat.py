"""Messages -> the reply of whoever answers: the seam between simulated users and what they talk to.

`HttpChat` asks a running gateway, or anything else that speaks OpenAI's chat completions. A request whose connection
broke, or that was answered 429 or 5xx, is sent again at most `retries` times: to a gateway that is the same turn.
Does not know who asks or what is made of the reply.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import aiohttp
import orjson

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Json, Message, Tool, ToolCall

_BACKOFF = Backoff(first_s=0.5)
_CLOSING_MAX_TOKENS = 16
_WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})


class ChatFailed(OpenClawError):
    """No reply came; `status` is HTTP's, None if nobody answered."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What was answered. `version` and `turn_id` are empty where the other side is no gateway of ours."""

    text: str
    version: str = ""
    turn_id: str = ""
    num_tokens: int | None = None
    finish_reason: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def message(self) -> Message:
        """The reply as the next request repeats it."""
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls)


class Chat(Protocol):
    """Whoever answers. `session` names the conversation, `model` a version (`NAME@v3`; None: the live one).

    `closing`: the last message of the session; nobody reads the reply, so it may be cut short.
    """

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        session: str,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        closing: bool = False,
    ) -> Reply: ...


class HttpChat:
    """A `Chat` over HTTP. Made, used and closed inside one event loop.

    `learn=False` asks the gateway not to learn from these sessions, as measuring must. With a `seed` each turn of each
    session has its own, so that a run can be repeated and no two sessions draw the same numbers; `seeded_by` is what of
    a session's name counts there, for sessions that are to draw the same.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        model: str = "default",
        learn: bool = True,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        seeded_by: Callable[[str], str] = str,
        retries: int = 3,
        backoff: Backoff = _BACKOFF,
        timeout_s: float = 180.0,
    ) -> None:
        self._url = f"{url.rstrip('/').removesuffix('/chat/completions').removesuffix('/v1')}/v1/chat/completions"
        self._model = model
        self._learn = learn
        self._options: dict[str, Json] = {"temperature": temperature, "max_tokens": max_tokens}
        self._seed = seed
        self._seeded_by = seeded_by
        self._retries = retries
        self._backoff = backoff
        self._http = aiohttp.ClientSession(
            # A connection each: between two turns a server may be restarted, and drops idle ones.
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=10.0),
            headers={"User-Agent": "openclaw-rl-evaluation", **({"Authorization": f"Bearer {key}"} if key else {})},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        session: str,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        closing: bool = False,
    ) -> Reply:
        """The reply, whole; raises `ChatFailed` after the last attempt."""
        body = self._body(messages, session, model, tools, closing)
        headers = {"Content-Type": "application/json", "X-Session-Id": session}
        if not self._learn:
            headers["X-No-Train"] = "session"
        if closing:
            headers["X-Session-Done"] = "true"
        for attempt in range(1, self._retries + 1):
            try:
                return await self._ask(body, headers)
            except ChatFailed as failure:
                if failure.status is not None and failure.status not in _WORTH_ANOTHER_TRY:
                    raise
            await asyncio.sleep(self._backoff.pause_s(attempt))
        return await self._ask(body, headers)

    def _body(
        self, messages: Sequence[Message], session: str, model: str | None, tools: Sequence[Tool], closing: bool
    ) -> bytes:
        body: dict[str, Json] = {
            "model": model or self._model,
            "messages": [m.to_json() for m in messages],
            **{name: value for name, value in self._options.items() if value is not None},
        }
        if tools:
            body["tools"] = [tool.to_json() for tool in tools]
        if closing:
            body["max_tokens"] = _CLOSING_MAX_TOKENS
        if self._seed is not None:
            body["seed"] = zlib.crc32(f"{self._seed}/{self._seeded_by(session)}/{len(messages)}".encode()) >> 1
        return orjson.dumps(body)

    async def _ask(self, body: bytes, headers: dict[str, str]) -> Reply:
        try:
            async with self._http.post(self._url, data=body, headers=headers) as response:
                raw = await response.read()
                if response.status != 200:
                    raise ChatFailed(f"{self._url} answered {response.status}: {_reason(raw)}", status=response.status)
                return _read(orjson.loads(raw), response.headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ChatFailed(f"{self._url} cannot be asked: {str(error) or type(error).__name__}") from error
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ChatFailed(
                f"{self._url} does not answer in the shape of a chat completion ({error!r})", status=200
            ) from error


def _read(raw: Json, headers: Mapping[str, str]) -> Reply:
    choice = raw["choices"][0]
    message = choice["message"]
    return Reply(
        text=message.get("content") or "",
        version=headers.get("X-OpenClaw-RL-Version", ""),
        turn_id=headers.get("X-OpenClaw-RL-Turn", ""),
        num_tokens=(raw.get("usage") or {}).get("completion_tokens"),
        finish_reason=choice.get("finish_reason"),
        tool_calls=tuple(
            ToolCall(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
            for c in message.get("tool_calls") or ()
        ),
    )


def _reason(raw: bytes) -> str:
    try:
        return str(orjson.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "no reason that can be read"

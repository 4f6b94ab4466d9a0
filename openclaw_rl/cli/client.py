"""The running gateway as a client sees it: whether it is ready, a streamed answer, feedback.

Turns HTTP into values and its failures into two errors: `ServerGone` (nobody answers, or the connection broke) and
`ServerRefused` (it answered with an error). Knows no terminal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlencode

import aiohttp
import orjson

from openclaw_rl.cli.address import START_IT, ServerGone
from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Json, ReasoningDelta, TextDelta

_PATIENCE_S = 30.0
"""How long an answer may take beyond the time that it was asked to wait."""


class ServerRefused(OpenClawError):
    """The server answered with an error; `status` is HTTP's, 200 when it came in the middle of a stream."""

    def __init__(self, message: str, *, status: int, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(slots=True)
class ChatAnswer:
    """An answer as it grows. `finish_reason` stays None when it did not come to its end."""

    version: str = ""
    turn_id: str = ""
    text: str = ""
    num_tokens: int | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPage:
    """Some turns as `/v1/rollouts` tells them, and the cursor behind them."""

    lines: tuple[dict[str, Json], ...]
    cursor: str


class GatewayClient:
    """Requests to one gateway. Made and closed inside a running event loop."""

    def __init__(self, url: str, key: str | None = None, *, name: str = "openclaw-rl") -> None:
        self._url = url
        headers = {"User-Agent": name}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        # A connection each: a chat pauses for minutes, and a server that was restarted meanwhile drops idle ones.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            headers=headers,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def why_not_ready(self) -> str | None:
        """None if requests are answered now, else what the server waits for."""
        try:
            async with self._open("GET", "/readyz"):
                return None
        except ServerRefused as refusal:
            if refusal.status != 503:
                raise
            return str(refusal)

    async def engines(self) -> list[tuple[str, str, str]]:
        """Where several engines answer as one: of each its name, how it is, and why. Needs a key."""
        async with self._session.get(f"{self._url}/readyz") as response:
            told = orjson.loads(await response.read()).get("engines", ())
            return [(str(one["name"]), str(one["health"]), str(one["reason"])) for one in told]

    async def models(self) -> list[str]:
        """The names that the server lists, its own first; refused without a valid key."""
        async with self._open("GET", "/v1/models") as response:
            return [str(model["id"]) for model in orjson.loads(await response.read())["data"]]

    async def served(self) -> tuple[str, int]:
        """The name of the model that answers, and how many tokens its window holds."""
        async with self._open("GET", "/v1/models") as response:
            first = orjson.loads(await response.read())["data"][0]
            return str(first["id"]), int(first["max_model_len"])

    async def send(self, path: str, body: Json, headers: Mapping[str, str]) -> str:
        """One request in any dialect, read to its end; the name of its turn."""
        async with self._open("POST", path, body, headers) as response:
            await response.read()
            return str(response.headers["X-OpenClaw-RL-Turn"])

    async def rate(self, turn_id: str, rating: Literal["good", "bad"], text: str) -> None:
        """Say outright what a turn was like."""
        async with self._open("POST", "/v1/feedback", {"turn_id": turn_id, "rating": rating, "text": text}):
            return

    async def rollouts(
        self, after: str, *, limit: int, wait_s: float = 0.0, state: Literal["settled", "open"] = "settled"
    ) -> RolloutPage:
        """The caller's own turns after a cursor; waits up to `wait_s` for one."""
        query = urlencode({"after": after, "limit": limit, "wait_s": wait_s, "state": state})
        try:
            async with asyncio.timeout(wait_s + _PATIENCE_S), self._open("GET", f"/v1/rollouts?{query}") as response:
                page = orjson.loads(await response.read())
                return RolloutPage(lines=tuple(dict(line) for line in page["data"]), cursor=str(page["cursor"]))
        except TimeoutError:
            raise ServerGone(f"{self._url} does not answer any more") from None

    async def ask(
        self,
        messages: Sequence[Mapping[str, Json]],
        *,
        model: str,
        session: str,
        answer: ChatAnswer,
        private: bool = False,
    ) -> AsyncGenerator[TextDelta | ReasoningDelta, None]:
        """Stream an answer, and keep it in `answer` as it grows. Closing the iterator cancels it on the server.

        `private`: nothing of the session is to be learned from.
        """
        body = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"X-Session-Id": session, **({"X-No-Train": "session"} if private else {})}
        async with self._open("POST", "/v1/chat/completions", body, headers) as response:
            answer.version = response.headers.get("X-OpenClaw-RL-Version", "")
            answer.turn_id = response.headers.get("X-OpenClaw-RL-Turn", "")
            async for event in _events(response.content):
                for delta in _read_chunk(event, answer):
                    yield delta

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Json = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        try:
            async with self._session.request(method, self._url + path, data=data, headers=headers) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.read())
                yield response
        except aiohttp.ClientConnectorError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ServerGone(f"no server answers at {self._url} ({reason}); {START_IT}") from error
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionError) as error:
            raise ServerGone("the server broke off before the end of its answer; ask again when it is back") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ServerGone(f"{self._url} cannot be asked: {str(error) or type(error).__name__}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerGone(f"{self._url} does not answer as an OpenClaw-RL server does ({error!r})") from error


async def _events(content: aiohttp.StreamReader) -> AsyncGenerator[Any, None]:
    """The JSON of server-sent events, however they are cut, up to the closing mark."""
    rest = b""
    async for data in content.iter_any():
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                return
            if event.startswith(b"data: "):  # anything else is a comment that keeps the connection alive
                yield orjson.loads(event[6:])
    raise aiohttp.ClientPayloadError("the answer stopped before its end")


def _read_chunk(chunk: Any, answer: ChatAnswer) -> list[TextDelta | ReasoningDelta]:
    if error := chunk.get("error"):
        raise ServerRefused(str(error["message"]), status=200, code=error.get("code"))
    if usage := chunk.get("usage"):
        answer.num_tokens = int(usage["completion_tokens"])
    deltas: list[TextDelta | ReasoningDelta] = []
    for choice in chunk["choices"]:
        if thought := choice["delta"].get("reasoning_content"):
            deltas.append(ReasoningDelta(thought))
        if text := choice["delta"].get("content"):
            answer.text += text
            deltas.append(TextDelta(text))
        answer.finish_reason = choice["finish_reason"]
    return deltas


def _refusal(status: int, body: bytes) -> ServerRefused:
    """An error in OpenAI's shape, or `/readyz`'s."""
    try:
        raw = orjson.loads(body)
        if "reason" in raw:
            return ServerRefused(str(raw["reason"]), status=status)
        return ServerRefused(str(raw["error"]["message"]), status=status, code=raw["error"].get("code"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ServerRefused(f"HTTP {status} without a reason that can be read", status=status)

"""Messages and tools -> the answer of the model behind a door, in OpenAI's chat dialect over HTTP.

A request is asked again, a bounded number of times and with the same Idempotency-Key, where the gateway is away or
busy; it stays one turn there. Then, and where the gateway refuses it, that is an `EnvError`: none of it is the agent's
doing. Names no temperature: what the gateway takes for everybody, `gateway.default_temperature`, counts here too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import orjson
from pydantic import BaseModel, Field, ValidationError

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, EnvError
from openclaw_rl.types import Door, Json, Message, Tool, ToolCall

PATIENCE = Backoff(first_s=0.5, longest_s=15.0)
MAX_TRIES = 9
"""Over a minute of pauses in all: an engine that died is back by then."""

_BUSY = frozenset({408, 429})

_Shape = TypeVar("_Shape", bound=BaseModel)


class WindowFull(Exception):
    """The model's window does not hold the prompt, or left the answer no room to end in."""


class _SaidFunction(BaseModel):
    name: str
    arguments: str


class _SaidCall(BaseModel):
    id: str
    function: _SaidFunction


class _SaidMessage(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_SaidCall] = Field(default_factory=list)

    def message(self) -> Message:
        calls = (ToolCall(id=c.id, name=c.function.name, arguments=c.function.arguments) for c in self.tool_calls)
        reasoning = self.reasoning_content or ""
        return Message(role="assistant", content=self.content or "", reasoning=reasoning, tool_calls=tuple(calls))


class _SaidChoice(BaseModel):
    message: _SaidMessage
    finish_reason: str


class _UsageRow(BaseModel):
    total_tokens: int


class _Completion(BaseModel):
    choices: list[_SaidChoice] = Field(min_length=1)
    usage: _UsageRow


class _ModelRow(BaseModel):
    id: str
    max_model_len: int


class _ModelRows(BaseModel):
    data: list[_ModelRow] = Field(min_length=1)


class _RefusalText(BaseModel):
    message: str
    code: str | None = None


class _Refusal(BaseModel):
    error: _RefusalText


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """`fills_window`: it was cut because the window was full."""

    message: Message
    fills_window: bool


class GatewayAsker:
    """Asks the model of one attempt; all of it is one session. Made and closed inside a running event loop."""

    def __init__(self, door: Door, *, patience: Backoff = PATIENCE) -> None:
        self._door = door
        self._patience = patience
        headers = {
            "Authorization": f"Bearer {door.key}",
            "User-Agent": "openclaw-rl-agent",
            "X-Session-Id": f"attempt-{secrets.token_hex(8)}",
            "X-Turn-Type": "main",
        }
        # The attempt has a time limit of its own.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        self._http = aiohttp.ClientSession(headers=headers, timeout=timeout)
        self._window = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def window(self) -> int:
        """How many tokens the model's window holds."""
        if not self._window:
            body = await self._insist("GET", "/v1/models", b"")
            self._window = _parsed(_ModelRows, body, "list of models").data[0].max_model_len
        return self._window

    async def ask(self, messages: Sequence[Message], tools: Sequence[Tool]) -> ModelAnswer:
        """The model's answer; `WindowFull` where the prompt does not fit."""
        window = await self.window()
        wanted: dict[str, Json] = {"model": self._door.model, "messages": [message.to_json() for message in messages]}
        if tools:
            wanted["tools"] = [tool.to_json() for tool in tools]
        body = await self._insist("POST", "/v1/chat/completions", orjson.dumps(wanted))
        found = _parsed(_Completion, body, "chat completion")
        choice = found.choices[0]
        is_full = choice.finish_reason == "length" and found.usage.total_tokens >= window
        return ModelAnswer(message=choice.message.message(), fills_window=is_full)

    async def _insist(self, method: str, path: str, body: bytes) -> bytes:
        """The answer, after as many tries as are allowed."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        url = f"{self._door.url.rstrip('/')}{path}"
        reason = ""
        for pause_s in (0.0, *islice(self._patience, MAX_TRIES - 1)):
            await asyncio.sleep(pause_s)
            try:
                async with self._http.request(method, url, data=body, headers=headers) as response:
                    answer = await response.read()
                    if response.status == 200:
                        return answer
                    reason = _refused(response.status, answer)
            except (aiohttp.ClientError, OSError) as error:
                reason = f"it cannot be reached ({type(error).__name__})"
        raise EnvError(f"the gateway at {self._door.url} gave no answer, {MAX_TRIES} times: {reason}")


def _refused(status: int, body: bytes) -> str:
    """Why it may answer another time; an error where it will not."""
    try:
        error = _Refusal.model_validate_json(body).error
    except ValidationError:
        error = _RefusalText(message="without a reason")
    if error.code == CONTEXT_LENGTH_EXCEEDED:
        raise WindowFull(error.message)
    if status in _BUSY or status >= 500:
        return f"it answered {status}, {error.message}"
    raise EnvError(f"the gateway refused a request of the agent with {status}: {error.message}")


def _parsed(shape: type[_Shape], body: bytes, what: str) -> _Shape:
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise EnvError(f"the gateway answered with something that is no {what} (at {where!r})") from None

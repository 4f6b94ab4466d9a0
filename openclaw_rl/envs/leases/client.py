"""An environment server elsewhere, as an `EnvServer`. What rooms do there it does not know.

Every call can be made twice, so that after a broken connection it is sent again, with the same key, a few times; then
the server is gone. A call that takes long is asked for again and again, each time for at most `HOLD_S`: how long it
may take is the server's to say, and a server that died in the middle is noticed soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from io import BytesIO
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from pydantic import ValidationError

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.leases.wire import (
    HOLD_S,
    MAX_ANSWER_BYTES,
    MAX_BODY_BYTES,
    AllocateBody,
    Answer,
    Body,
    ExecBody,
    NoBody,
    Refusal,
    ResetBody,
    SolveBody,
    Status,
    StepBody,
)
from openclaw_rl.errors import ConfigError, EnvError, EnvGone
from openclaw_rl.types import Grade, Json, Observation, Opening, Ran, RoomLease, Task, TaskRef, ToolCall

_Value = TypeVar("_Value")

_BACKOFF = Backoff(first_s=0.2, longest_s=5.0)
_CONNECT_S = 10.0
_SPARE_S = 15.0
"""For the way there and back, beyond what the server holds a request for."""

_AWAY = frozenset({408, 502, 503, 504})
"""What something between us and the server says when the server does not answer."""


class _NoAnswer(Exception):
    """The connection failed; the call may have run or not."""


class RemoteEnvServer:
    """The environment server at a URL. Made anywhere; used and closed inside one event loop.

    After `retries` failures in a row, with growing pauses between them, it is gone: `EnvGone`. A failure is a broken
    connection, or one that is silent for `silence_s`.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        retries: int = 5,
        backoff: Backoff = _BACKOFF,
        silence_s: float = HOLD_S + _SPARE_S,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no URL of an environment server; it is written http://HOST:PORT")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
            raise ConfigError(f"the key for {url} holds characters that no header can carry; copy it again")
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._retries = retries
        self._backoff = backoff
        self._silence_s = silence_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections; leases stay until they are closed or expire."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def tasks(self, environment: str, source: str) -> Sequence[Task]:
        query = urlencode({"environment": environment, "source": source})
        return await self._insist("GET", f"/tasks?{query}", Answer[tuple[Task, ...]])

    async def allocate(self, task: TaskRef, *, request_id: str) -> RoomLease:
        body = AllocateBody(task=task, request_id=request_id)
        return await self._insist("POST", "/allocate", Answer[RoomLease], body)

    async def heartbeat(self, lease: str) -> RoomLease:
        return await self._call(lease, "heartbeat", Answer[RoomLease], NoBody())

    async def reset(self, lease: str, *, key: str, gateway: str, harness: str) -> Opening:
        return await self._call(lease, "reset", Answer[Opening], ResetBody(key=key, gateway=gateway, harness=harness))

    async def solve(self, lease: str, *, key: str) -> None:
        await self._call(lease, "solve", Answer[None], SolveBody(key=key))

    async def step(self, lease: str, call: ToolCall, *, key: str) -> Observation:
        return await self._call(lease, "step", Answer[Observation], StepBody(key=key, call=call))

    async def exec(self, lease: str, command: str, *, key: str, timeout_s: float, env: Mapping[str, str]) -> Ran:
        body = ExecBody(key=key, command=command, timeout_s=timeout_s, env=dict(env))
        return await self._call(lease, "exec", Answer[Ran], body)

    async def evaluate(self, lease: str) -> Grade:
        return await self._call(lease, "evaluate", Answer[Grade], NoBody())

    async def close(self, lease: str) -> None:
        await self._call(lease, "close", Answer[None], NoBody())

    async def status(self) -> Mapping[str, Json]:
        return await self._insist("GET", "/status", Answer[Status])

    async def _call(self, lease: str, name: str, told: type[Answer[_Value]], body: Body) -> _Value:
        return await self._insist("POST", f"/leases/{quote(lease, safe='')}/{name}", told, body)

    async def _insist(self, method: str, path: str, told: type[Answer[_Value]], body: Body | None = None) -> _Value:
        data = b"" if body is None else body.model_dump_json().encode()
        if len(data) >= MAX_BODY_BYTES:
            raise EnvError(f"this call has {len(data)} bytes; environment servers read less than {MAX_BODY_BYTES}")
        num_failures = 0
        while True:
            try:
                answer = await self._ask(method, path, told, data)
            except _NoAnswer as failure:
                num_failures += 1
                if num_failures > self._retries:
                    reason = f"the environment server at {self.url} does not answer: {failure}, {num_failures} times"
                    raise EnvGone(reason) from None
            else:
                if answer is not None:
                    return answer.value
                num_failures = 0
                continue
            await asyncio.sleep(self._backoff.pause_s(num_failures))

    async def _ask(self, method: str, path: str, told: type[Answer[_Value]], data: bytes) -> Answer[_Value] | None:
        """The answer; None while the call still runs."""
        if self._session is None:
            # As many connections as there are calls: one that waits for another's end would not renew its lease.
            timeout = aiohttp.ClientTimeout(total=self._silence_s, sock_connect=_CONNECT_S)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=BytesIO(data) if data else None,
                headers=self._headers,
                allow_redirects=False,
            ) as response:
                return self._read(response.status, await self._body(response), told)
        except TimeoutError:
            raise _NoAnswer("it is silent") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _NoAnswer(str(error) or type(error).__name__) from None

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_chunked(1 << 16):
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise EnvError(f"{self.url} answered with more than {MAX_ANSWER_BYTES} bytes")
            parts.append(part)
        return b"".join(parts)

    def _read(self, status: int, body: bytes, told: type[Answer[_Value]]) -> Answer[_Value] | None:
        if status == HTTPStatus.ACCEPTED:
            return None
        if status in _AWAY:
            raise _NoAnswer(f"HTTP {status}")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConfigError(f"{self.url} does not let us in (HTTP {status}); is the key of that server configured?")
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            raise EnvError(f"something went wrong at {self.url}; the log of that server has the reason")
        try:
            if status == HTTPStatus.OK:
                return told.model_validate_json(body)
            raise Refusal.model_validate_json(body).error
        except ValidationError:
            message = f"{self.url} does not answer as an environment server does (HTTP {status}); is the URL right?"
            raise ConfigError(message) from None

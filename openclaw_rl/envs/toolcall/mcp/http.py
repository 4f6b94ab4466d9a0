"""A server at a URL, over streamable HTTP: every message is a POST, answered by JSON or by a stream of events.

A stream that the server ends before its answer is taken up again where it ended. Requests of the server are declined.
All is bounded in time and size. Redirects are not followed: they would carry the headers, perhaps a key, elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from openclaw_rl.envs.toolcall.mcp.wire import MAX_ANSWER_BYTES, AnswerLate, WireBroken
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Json

_SESSION = "Mcp-Session-Id"
_CLOSE_S = 5.0
_LONGEST_RETRY_S = 10.0
_METHOD_NOT_FOUND = -32601


@dataclass(slots=True)
class _Stream:
    """Where a stream of events has come to, and how long to wait before it is taken up again."""

    last_id: str = ""
    retry_s: float = 1.0


class HttpWire:
    """A `McpWire` to `url`. `headers` are sent with every request. Used and closed inside one event loop."""

    def __init__(self, url: str, *, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TaskError(f"{url!r} is not the URL of an MCP server; one is written https://HOST/mcp")
        self._url = url
        self._host = parts.netloc
        self._headers = {"Accept": "application/json, text/event-stream", **headers}
        self._session_id = ""
        self._client: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))

    async def exchange(
        self, message: Mapping[str, Json], *, timeout_s: float, headers: Mapping[str, str]
    ) -> Mapping[str, Json] | None:
        try:
            async with asyncio.timeout(timeout_s):
                if "id" in message:
                    return await self._ask(message, headers)
                await self._notify(message, headers)
                return None
        except TimeoutError:
            raise AnswerLate(f"{self._host} gave no answer within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise WireBroken(f"{self._host} cannot be reached: {type(error).__name__}") from None

    async def close(self) -> None:
        if self._client is None:
            return
        client, self._client = self._client, None
        try:
            if self._session_id:
                async with asyncio.timeout(_CLOSE_S), client.delete(self._url, headers=self._sent({})):
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            return  # the server ends the session by itself some day
        finally:
            await client.close()

    async def _notify(self, message: Mapping[str, Json], headers: Mapping[str, str]) -> None:
        async with self._request("POST", headers, message) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise WireBroken(f"{self._host} answered a notice with {response.status}")

    async def _ask(self, message: Mapping[str, Json], headers: Mapping[str, str]) -> Mapping[str, Json]:
        stream = _Stream()
        async with self._request("POST", headers, message) as response:
            self._session_id = response.headers.get(_SESSION, self._session_id)
            said = await self._answer(response, message["id"], headers, stream)
        while said is None and stream.last_id:
            await asyncio.sleep(stream.retry_s)
            resumed = {**headers, "Last-Event-ID": stream.last_id}
            async with self._request("GET", resumed) as response:
                said = await self._answer(response, message["id"], headers, stream)
        if said is None:
            raise WireBroken(f"{self._host} ended the stream without an answer")
        return said

    def _request(
        self, method: str, headers: Mapping[str, str], message: Mapping[str, Json] | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        assert self._client is not None
        body = None if message is None else json.dumps(message).encode()
        return self._client.request(method, self._url, data=body, headers=self._sent(headers), allow_redirects=False)

    def _sent(self, headers: Mapping[str, str]) -> dict[str, str]:
        session = {_SESSION: self._session_id} if self._session_id else {}
        return {"Content-Type": "application/json", **self._headers, **headers, **session}

    async def _answer(
        self, response: aiohttp.ClientResponse, wanted: Json, headers: Mapping[str, str], stream: _Stream
    ) -> Mapping[str, Json] | None:
        """The answer; None where a stream ended before it."""
        if response.content_type == "text/event-stream":
            async with aclosing(_bounded(response)) as parts, aclosing(_events(parts, stream)) as events:
                async for said in events:
                    if "method" in said and "id" in said:
                        await self._notify(_declined(said), headers)
                    elif _is_answer(said, wanted):
                        return said
            return None
        whole = _parsed(b"".join([part async for part in _bounded(response)]))
        if whole is not None and _is_answer(whole, wanted):
            return whole
        raise WireBroken(f"{self._host} answered {response.status}{self._remedy(response.status)}")

    def _remedy(self, status: int) -> str:
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return "; give it the key in `headers`"
        if status == HTTPStatus.NOT_FOUND and self._session_id:
            return ": it has ended the session"
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            return ": it is elsewhere; redirects are not followed, name the URL that it leads to"
        return " with nothing that is a JSON-RPC answer; is this the URL of an MCP server?"


async def _bounded(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    size = 0
    async for part in response.content.iter_chunked(1 << 16):
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise WireBroken(f"{response.url.host} answered with more than {MAX_ANSWER_BYTES} bytes")
        yield part


async def _events(parts: AsyncIterator[bytes], stream: _Stream) -> AsyncGenerator[Mapping[str, Json]]:
    """The messages of a stream of server-sent events, which may break anywhere."""
    unread = b""
    data: list[bytes] = []
    async for part in parts:
        *lines, unread = (unread + part).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"id":
                stream.last_id = value.decode("latin-1")
            elif name == b"retry" and value.isdigit():
                stream.retry_s = min(int(value) / 1000, _LONGEST_RETRY_S)
            elif not line and data:
                said = _parsed(b"\n".join(data))
                data = []
                if said is not None:
                    yield said


def _declined(request: Mapping[str, Json]) -> dict[str, Json]:
    refusal = {"error": {"code": _METHOD_NOT_FOUND, "message": "this client has nothing to ask"}}
    answer = {"result": {}} if request["method"] == "ping" else refusal
    return {"jsonrpc": "2.0", "id": request["id"], **answer}


def _parsed(body: bytes) -> Mapping[str, Json] | None:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _is_answer(said: Mapping[str, Json], wanted: Json) -> bool:
    return ("result" in said or "error" in said) and said.get("id") in (wanted, None)

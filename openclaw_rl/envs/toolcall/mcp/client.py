"""A server of the Model Context Protocol -> a toolbox.

Opens with the `initialize` handshake, and with servers that know only the revision without sessions speaks that one:
every request then says who asks. The server's errors for a call are observations: whoever called may do better. That it
dies, hangs, floods or speaks another protocol is an `EnvError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count

from openclaw_rl.envs.toolcall.mcp.wire import McpWire, WireBroken
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments
from openclaw_rl.errors import EnvError
from openclaw_rl.types import Json, Observation, Tool

SESSION_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol that open with a handshake, the newest first."""
SESSIONLESS_VERSION = "2026-07-28"

_UNSUPPORTED_VERSION = -32022
_CLIENT = {"name": "openclaw-rl", "version": "1"}
_MAX_PAGES = 100
_MAX_TOOLS = 1000


class McpTools:
    """A `Toolbox` over one server, which `name` tells apart from others."""

    def __init__(self, wire: McpWire, *, name: str, timeout_s: float = 60.0) -> None:
        self.tools: tuple[Tool, ...] = ()
        self._wire = wire
        self._name = name
        self._timeout_s = timeout_s
        self._ids = count(1)
        self._version = ""

    async def open(self) -> None:
        """Agrees on a revision and asks for the tools."""
        await self._wire.open()
        await self._agree()
        self.tools = await self._list()

    async def call(self, name: str, arguments: Arguments) -> Observation:
        answer = await self._request("tools/call", {"name": name, "arguments": dict(arguments)})
        if "error" in answer:
            return Observation(content=f"{name}: {_message(answer['error'])}", is_error=True)
        result = self._result(answer, "tools/call")
        if result.get("resultType") == "input_required":
            return Observation(content=f"{name} asks for input that nobody gives here.", is_error=True)
        return Observation(content=_content(result), is_error=result.get("isError") is True)

    async def close(self) -> None:
        await self._wire.close()

    async def _agree(self) -> None:
        offered = {"protocolVersion": SESSION_VERSIONS[0], "capabilities": {}, "clientInfo": _CLIENT}
        answer = await self._request("initialize", offered)
        if _speaks_without_sessions(answer.get("error")):
            self._version = SESSIONLESS_VERSION
            return
        version = self._result(answer, "initialize").get("protocolVersion")
        if version not in SESSION_VERSIONS:
            raise EnvError(f"{self._name} speaks revision {version!r} of MCP; known are {', '.join(SESSION_VERSIONS)}")
        self._version = version
        notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._wire.exchange(notice, timeout_s=self._timeout_s, headers=self._headers("", {}))

    async def _list(self) -> tuple[Tool, ...]:
        found: list[Tool] = []
        cursor: Json = None
        for _ in range(_MAX_PAGES):
            answer = await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            page = self._result(answer, "tools/list")
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise WireBroken(f"{self._name} answered tools/list without a list of tools")
            found += (self._tool(raw) for raw in listed)
            cursor = page.get("nextCursor")
            if cursor is None:
                return tuple(found)
            if len(found) > _MAX_TOOLS:
                break
        raise EnvError(f"{self._name} lists more than {_MAX_TOOLS} tools, or more than {_MAX_PAGES} pages of them")

    def _tool(self, raw: Json) -> Tool:
        name = raw.get("name") if isinstance(raw, dict) else None
        schema = raw.get("inputSchema") if isinstance(raw, dict) else None
        if not isinstance(name, str) or not name or not isinstance(schema, dict):
            raise WireBroken(f"{self._name} lists a tool that has no name or no schema")
        description = raw.get("description") or raw.get("title")
        return Tool(name=name, description=description if isinstance(description, str) else "", parameters=schema)

    async def _request(self, method: str, params: Mapping[str, Json]) -> Mapping[str, Json]:
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **self._meta()}}
        answer = await self._wire.exchange(message, timeout_s=self._timeout_s, headers=self._headers(method, params))
        if answer is None:
            raise WireBroken(f"{self._name} did not answer {method}")
        return answer

    def _meta(self) -> Mapping[str, Json]:
        if self._version != SESSIONLESS_VERSION:
            return {}
        said = {"protocolVersion": self._version, "clientInfo": _CLIENT, "clientCapabilities": {}}
        return {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in said.items()}}

    def _headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": self._version} if self._version else {}
        if self._version == SESSIONLESS_VERSION:
            headers["Mcp-Method"] = method
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        return headers

    def _result(self, answer: Mapping[str, Json], method: str) -> Mapping[str, Json]:
        if "error" in answer:
            raise EnvError(f"{self._name} refused {method}: {_message(answer['error'])}")
        result = answer.get("result")
        if not isinstance(result, dict):
            raise WireBroken(f"{self._name} answered {method} without a result")
        return result


def _speaks_without_sessions(error: Json) -> bool:
    if not isinstance(error, dict) or error.get("code") != _UNSUPPORTED_VERSION:
        return False
    data = error.get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    return isinstance(supported, list) and SESSIONLESS_VERSION in supported


def _message(error: Json) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else "an error without a message"


def _content(result: Mapping[str, Json]) -> str:
    """What a result says, as text. Its structured form counts where it has no other."""
    content = result.get("content")
    parts: Sequence[Json] = content if isinstance(content, list) else []
    if not parts and result.get("structuredContent") is not None:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(_part(part) for part in parts if isinstance(part, dict))


def _part(part: Mapping[str, Json]) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", ""))
    if kind == "resource_link":
        return str(part.get("uri", ""))
    resource = part.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        return str(resource.get("text") or f"[{resource.get('mimeType', 'data')} at {resource.get('uri', '')}]")
    return f"[{kind}: {part.get('mimeType', 'unknown form')}]"

"""The protocol itself, over a wire that calls a server right here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from openclaw_rl.envs.toolcall.mcp.client import SESSION_VERSIONS, McpTools
from openclaw_rl.envs.toolcall.mcp.wire import WireBroken
from openclaw_rl.errors import EnvError
from tests.fakes.mcp_server import McpServer


class Direct:
    """A wire without a way. `says` answers in the server's place."""

    def __init__(self, server: McpServer, says: Mapping[str, Mapping[str, Any] | None] | None = None) -> None:
        self._server = server
        self._says = says or {}
        self.headers: list[Mapping[str, str]] = []
        self.is_closed = False

    async def open(self) -> None:
        """It is always there."""

    async def exchange(
        self, message: Mapping[str, Any], *, timeout_s: float, headers: Mapping[str, str]
    ) -> Mapping[str, Any] | None:
        self.headers.append(headers)
        if message["method"] in self._says:
            return self._says[message["method"]]
        return self._server.respond(json.loads(json.dumps(message)))

    async def close(self) -> None:
        self.is_closed = True


async def opened(*modes: str) -> tuple[McpTools, McpServer, Direct]:
    server = McpServer(*modes)
    wire = Direct(server)
    tools = McpTools(wire, name="the server")
    await tools.open()
    return tools, server, wire


@pytest.mark.parametrize("version", SESSION_VERSIONS)
async def test_every_revision_with_a_handshake_is_agreed_on(version: str) -> None:
    _, server, wire = await opened(f"version={version}")
    assert [message["method"] for message in server.told] == ["initialize", "notifications/initialized", "tools/list"]
    assert wire.headers == [{}, *[{"MCP-Protocol-Version": version}] * 2]
    assert "_meta" not in server.told[-1]["params"]


async def test_a_server_that_knows_only_the_revision_without_sessions_is_spoken_to_in_it() -> None:
    tools, server, wire = await opened("sessionless")
    await tools.call("echo", {"text": "a"})
    assert [message["method"] for message in server.told] == ["initialize", "tools/list", "tools/call"]
    said = server.told[-1]["params"]["_meta"]
    assert set(said) == {
        f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")
    }
    assert wire.headers[-1] == {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }


async def test_another_revision_is_refused_by_its_name() -> None:
    with pytest.raises(EnvError, match="speaks revision '1999-01-01' of MCP; known are 2025-11-25"):
        await opened("version=1999-01-01")


async def test_all_pages_of_tools_are_read_and_endless_ones_are_not() -> None:
    tools, server, _ = await opened("paged")
    assert len(tools.tools) == 12
    assert [m["params"].get("cursor") for m in server.told if m["method"] == "tools/list"] == [None, "5", "10"]
    with pytest.raises(EnvError, match="more than 100 pages"):
        await opened("endless")


@pytest.mark.parametrize(
    ("tool", "content", "is_error"),
    [
        ("echo", "", False),
        ("fail", "it went wrong", True),
        ("refuse", "refuse: the arguments are not to my taste", True),
        ("structured", '{"degrees": 7}', False),
        ("shapes", "one\n[image: image/png]\ntwo\n[audio/wav at file:///b]\nfile:///c", False),
        ("input", "input asks for input that nobody gives here.", True),
    ],
)
async def test_what_a_call_came_to_is_text(tool: str, content: str, is_error: bool) -> None:
    tools, _, _ = await opened()
    observation = await tools.call(tool, {})
    assert (observation.content, observation.is_error) == (content, is_error)


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("initialize", {"error": {"code": -1, "message": "go away"}}, "refused initialize: go away"),
        ("initialize", {"error": "?"}, "refused initialize: an error without a message"),
        ("initialize", {"result": []}, "answered initialize without a result"),
        ("initialize", None, "did not answer initialize"),
        ("tools/list", {"result": {}}, "without a list of tools"),
        ("tools/list", {"result": {"tools": [{"name": "x"}]}}, "a tool that has no name or no schema"),
        ("tools/list", {"result": {"tools": [7]}}, "a tool that has no name or no schema"),
    ],
)
async def test_answers_of_another_form_fail_the_attempt(
    method: str, answer: Mapping[str, Any] | None, said: str
) -> None:
    tools = McpTools(Direct(McpServer(), {method: answer}), name="the server")
    with pytest.raises(EnvError, match=said):
        await tools.open()


async def test_a_result_without_a_form_fails_the_attempt_and_strange_parts_do_not() -> None:
    server = McpServer()
    for result, content in (
        ({"content": [7, {"type": "hologram"}, {}]}, "[hologram: unknown form]\n[None: unknown form]"),
        ({}, ""),
    ):
        tools = McpTools(Direct(server, {"tools/call": {"result": result}}), name="the server")
        await tools.open()
        assert (await tools.call("echo", {})).content == content
    tools = McpTools(Direct(server, {"tools/call": {"result": 7}}), name="the server")
    await tools.open()
    with pytest.raises(WireBroken, match="answered tools/call without a result"):
        await tools.call("echo", {})


async def test_closing_closes_the_wire() -> None:
    tools, _, wire = await opened()
    await tools.close()
    assert wire.is_closed

"""Servers of the Model Context Protocol in a box: what they answer arrives, and what they do wrong stays in the box."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.mcp.boxed import BoxWire
from openclaw_rl.envs.toolcall.mcp.client import McpTools
from openclaw_rl.envs.toolcall.mcp.wire import AnswerLate, WireBroken
from openclaw_rl.errors import EnvError

FAKES = Path(__file__).parents[4] / "fakes"


@asynccontextmanager
async def served(
    sandbox: Sandbox, *modes: str, timeout_s: float = 30.0, opened: bool = True
) -> AsyncIterator[McpTools]:
    command = [sys.executable, "-I", "/fakes/mcp_server.py", *modes]
    wire = BoxWire(sandbox, BoxSpec(read_only={"/fakes": FAKES}), command)
    tools = McpTools(wire, name="the fake", timeout_s=timeout_s)
    try:
        if opened:
            await tools.open()
        yield tools
    finally:
        await tools.close()


async def test_a_server_in_a_box_remembers_and_answers(sandbox: Sandbox) -> None:
    async with served(sandbox, "paged", "banner", "asks") as tools:
        assert [tool.name for tool in tools.tools][:3] == ["echo", "add", "fail"]
        assert len(tools.tools) == 12
        assert tools.tools[0].description == "It does echo."
        said = await tools.call("echo", {"text": "grüße \ud800\n\0"})
        assert (said.content, said.is_error) == ("grüße \ud800\n\0", False)
        assert [(await tools.call("count", {})).content for _ in range(2)] == ["2", "3"]
        wrong = await tools.call("fail", {})
        assert (wrong.content, wrong.is_error) == ("it went wrong", True)
        big = await tools.call("echo", {"text": "x" * 300_000})
        assert len(big.content) == 300_000


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("die", "died: it ended with exit code 7: so long"),
        ("flood", "flood: a line of more than"),
        ("garbage", "garbage: 200 lines"),
        ("chatter", "garbage: 200 lines"),
    ],
)
async def test_a_server_that_fails_over_a_call_fails_the_attempt(sandbox: Sandbox, tool: str, said: str) -> None:
    async with served(sandbox) as tools:
        with pytest.raises(WireBroken, match=said):
            await tools.call(tool, {})


async def test_a_server_that_hangs_or_died_does_not_hold_anybody_up(sandbox: Sandbox) -> None:
    async with served(sandbox, timeout_s=1.0) as tools:
        with pytest.raises(AnswerLate, match="no answer within 1 s$"):
            await tools.call("hang", {})
        with pytest.raises(AnswerLate):
            await tools.call("echo", {"text": "y" * (1 << 20)})  # more than a pipe holds that nobody reads
    async with served(sandbox) as tools:
        for _ in range(2):
            with pytest.raises(WireBroken, match="died"):
                await tools.call("die", {})


async def test_a_server_that_never_speaks_or_cannot_start_is_told(sandbox: Sandbox) -> None:
    async with served(sandbox, "deaf", timeout_s=1.0, opened=False) as tools:
        with pytest.raises(AnswerLate, match='as by npx or uvx, needs "network": true'):
            await tools.open()
    wire = BoxWire(sandbox, BoxSpec(), ["/no/such/program"])
    tools = McpTools(wire, name="nobody")
    try:
        with pytest.raises(EnvError, match="/no/such/program"):
            await tools.open()
    finally:
        await tools.close()
        await tools.close()


async def test_every_server_is_its_own(sandbox: Sandbox) -> None:
    async with served(sandbox) as one, served(sandbox) as other:
        answers = await asyncio.gather(one.call("count", {}), other.call("count", {}), one.call("count", {}))
        assert sorted(answer.content for answer in answers) == ["1", "1", "2"]

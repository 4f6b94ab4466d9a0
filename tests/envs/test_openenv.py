"""OpenEnv's own servers and clients as the oracle of ours: both directions, over real sockets.

Needs a Python with `pip install openenv` (3.11 or newer, not ours): OPENENV_PYTHON=/path/to/python.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from openclaw_rl.envs.tasks.openenv.environment import OpenEnvEnvironment
from openclaw_rl.envs.tasks.openenv.server import serve_openenv
from openclaw_rl.errors import EnvBusy, EnvError
from openclaw_rl.types import Task, ToolCall
from tests.unit.envs.tasks.openenv.counting import CountingEnvironment

PYTHON = os.environ.get("OPENENV_PYTHON", "")

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="OPENENV_PYTHON names no Python that has the package openenv"),
    pytest.mark.timeout(240),  # OpenEnv's server takes half a minute to be imported
]

SERVER = """
import sys
import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

class Guess(Action):
    number: int

class Seen(Observation):
    said: str

class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, split=None, index=None):
        if split == "late":
            raise RuntimeError("there is nothing late")
        self.secret = seed if split is None else index
        return Seen(said="Guess my number.")

    def step(self, action, timeout_s=None):
        if action.number == 13:
            raise RuntimeError("unlucky")
        right = action.number == self.secret
        return Seen(said="right" if right else "wrong", done=right, reward=1.0 if right else -0.25)

    @property
    def state(self):
        return State(episode_id="e", step_count=0)

class Listed(Guessing):
    def list_splits(self):
        return ["train", {"name": "late", "type": "test"}]

    def num_tasks(self, split):
        return 3

class Calculator(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        tools = FastMCP("calculator")

        @tools.tool()
        def add(a: int, b: int) -> int:
            "Adds."
            return a + b

        @tools.tool()
        def fail() -> str:
            raise ValueError("nothing works")

        super().__init__(tools)

    def reset(self, seed=None, episode_id=None):
        return Observation(metadata={"ready": True})

    def _step_impl(self, action, timeout_s=None):
        return Observation()

    @property
    def state(self):
        return State(episode_id="e", step_count=0)

kind, number = sys.argv[1:]
env, action, seen = {
    "seeds": (Guessing, Guess, Seen),
    "listed": (Listed, Guess, Seen),
    "tools": (Calculator, CallToolAction, CallToolObservation),
}[kind]
app = create_fastapi_app(env, action, seen, max_concurrent_envs=2, env_name=kind)
uvicorn.run(app, fd=int(number), log_level="critical")
"""

CLIENT = """
import asyncio, json, sys
from openenv.core.generic_client import GenericEnvClient

async def main(url):
    told = {}

    def add(by):
        return {"type": "call_tool", "tool_name": "add", "arguments": {"by": by}, "metadata": {}}

    async with GenericEnvClient(base_url=url) as env:
        begun = await env.reset(split="train", index=0)
        told["begun"] = (begun.observation["instruction"], begun.reward, begun.done)
        listed = await env.step({"type": "list_tools"})
        told["tools"] = [(tool["name"], tool["input_schema"]) for tool in listed.observation["tools"]]
        one = await env.step(add(3))
        told["added"] = (one.observation["result"]["data"], one.reward, one.done)
        wrong = await env.step({"tool_name": "subtract"})
        told["wrong"] = (wrong.observation["result"]["is_error"], wrong.reward, wrong.done)
        told["state"] = (await env.state())["step_count"]
        end = await env.step({"tool_name": "finish"})
        told["end"] = (end.reward, end.done, end.metadata["share"])
        try:
            await env.step(add(1))
        except RuntimeError as error:
            told["over"] = str(error)
        await env.reset(seed=2)
        async with GenericEnvClient(base_url=url) as other:
            try:
                await other.reset()
            except RuntimeError as error:
                told["full"] = str(error)
        try:
            await env.step({"tool_name": "break"})
        except RuntimeError as error:
            told["broke"] = str(error)
    async with GenericEnvClient(base_url=url) as env:
        again = await env.reset(split="held_out", index=0)
        told["again"] = again.observation["metadata"]["task"]
    return told

told = asyncio.run(main(sys.argv[1]))
with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    told["sync"] = env.reset(seed=0).observation["metadata"]["task"]
print(json.dumps(told))
"""


@asynccontextmanager
async def openenv_server(kind: str) -> AsyncIterator[str]:
    """OpenEnv's server; it is ours to open the port, so that connections wait until it is there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        command = [PYTHON, "-c", SERVER, kind, str(listening.fileno())]
        server = await asyncio.create_subprocess_exec(*command, pass_fds=[listening.fileno()])
        try:
            await asyncio.to_thread(_wait_until_it_answers, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            await server.wait()


def _wait_until_it_answers(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.recv(1), "OpenEnv's server went away"


def call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="c", name=tool, arguments=orjson.dumps(arguments).decode())


@asynccontextmanager
async def attempted(environment: OpenEnvEnvironment, task: Task) -> AsyncIterator[Any]:
    room = await environment.room(task.ref, gateway="", programs={})
    try:
        yield room
    finally:
        await room.close()


async def test_a_server_of_theirs_is_an_environment() -> None:
    environment = OpenEnvEnvironment()
    async with openenv_server("seeds") as url:
        tasks = await environment.tasks(f"{url}#tasks=20")
        assert [task.ref.name for task in tasks][18:22] == ["seed-18", "seed-19", "seed-1000000", "seed-1000001"]
        async with attempted(environment, tasks[7]) as room:
            opening = await room.open()
            assert opening.instruction == "Guess my number."
            assert opening.tools[0].parameters["properties"] == {"number": {"title": "Number", "type": "integer"}}
            refused = await room.step(call("step", numbr=7))
            assert refused.is_error
            assert "number: Field required" in refused.content
            unlucky = await room.step(call("step", number=13))
            assert (unlucky.is_error, unlucky.content) == (True, "unlucky")
            wrong = await room.step(call("step", number=1))
            assert (wrong.content, wrong.reward, wrong.is_done) == ("wrong", -0.25, False)
            right = await room.step(call("step", number=7))
            assert (right.content, right.reward, right.is_done) == ("right", 1.0, True)
            grade = await room.evaluate()
            assert (grade.reward, grade.is_solved) == (0.75, True)
        async with attempted(environment, tasks[0]) as one, attempted(environment, tasks[1]) as two:
            await one.open()
            await two.open()
            async with attempted(OpenEnvEnvironment(max_wait_s=0.0), tasks[2]) as three:
                with pytest.raises(EnvBusy):
                    await three.open()


async def test_the_tasks_that_a_server_of_theirs_lists_are_ours() -> None:
    environment = OpenEnvEnvironment()
    async with openenv_server("listed") as url:
        tasks = await environment.tasks(url)
        assert [(task.ref.name, task.split) for task in tasks[2:4]] == [("train/2", "train"), ("late/0", "held_out")]
        async with attempted(environment, tasks[2]) as room:
            await room.open()
            assert (await room.step(call("step", number=2))).is_done
        async with attempted(environment, tasks[3]) as room:
            with pytest.raises(EnvError, match="there is nothing late"):
                await room.open()


async def test_the_tools_of_a_server_of_theirs_are_called() -> None:
    environment = OpenEnvEnvironment()
    async with openenv_server("tools") as url, attempted(environment, (await environment.tasks(url))[0]) as room:
        opening = await room.open()
        assert [(tool.name, tool.description) for tool in opening.tools] == [("add", "Adds."), ("fail", "")]
        assert (await room.step(call("add", a=1, b=2))).content == "3"
        wrong = await room.step(call("add", a="x"))
        assert (wrong.is_error, "valid integer" in wrong.content) == (True, True)
        failed = await room.step(call("fail"))
        assert (failed.is_error, "nothing works" in failed.content) == (True, True)


async def test_clients_of_theirs_attempt_what_we_serve() -> None:
    counting = CountingEnvironment()
    async with serve_openenv(counting, max_rooms=1) as url:
        client = await asyncio.create_subprocess_exec(PYTHON, "-c", CLIENT, url, stdout=subprocess.PIPE)
        output, _ = await client.communicate()
        assert client.returncode == 0
    integer = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
    nothing = {"type": "object", "properties": {}}
    assert orjson.loads(output) == {
        "begun": ["You can count.\n\nCount to 3.", None, False],
        "tools": [["add", integer], ["break", nothing], ["sleep", nothing], ["finish", nothing]],
        "added": ["3", 0.25, False],
        "wrong": [True, None, False],
        "state": 2,
        "end": [0.75, True, 1.0],
        "over": "Server error: the attempt is over; a reset begins another (code: EXECUTION_ERROR)",
        "full": "Server error: all 1 rooms are taken (code: CAPACITY_REACHED)",
        "broke": "Server error: the abacus broke (code: SESSION_ERROR)",
        "again": "to-7",
        "sync": "to-3",
    }
    assert counting.rooms == set()

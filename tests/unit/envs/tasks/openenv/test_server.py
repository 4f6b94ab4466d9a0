"""An environment of ours over OpenEnv's protocol: asked on the socket, over HTTP, and by our own client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from openclaw_rl.envs.tasks.openenv.environment import OpenEnvEnvironment
from openclaw_rl.envs.tasks.openenv.server import serve_openenv
from openclaw_rl.errors import ConfigError, EnvBusy, EnvError
from openclaw_rl.types import Grade, ToolCall
from tests.unit.envs.tasks.openenv.counting import CountingEnvironment


@pytest.fixture
def counting() -> CountingEnvironment:
    return CountingEnvironment()


@pytest.fixture
async def url(counting: CountingEnvironment) -> AsyncIterator[str]:
    async with serve_openenv(counting, max_rooms=2) as url:
        yield url
    assert counting.rooms == set()


class Talk:
    """A client that sends what it likes."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def ask(self, raw: str | dict[str, Any]) -> dict[str, Any]:
        await (self.socket.send_str(raw) if isinstance(raw, str) else self.socket.send_json(raw))
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        told: dict[str, Any] = await self.socket.receive_json(timeout=10)
        return told

    async def reset(self, **data: Any) -> dict[str, Any]:
        return await self.ask({"type": "reset", "data": data})

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask({"type": "step", "data": {"tool_name": tool, "arguments": arguments}})


@contextlib.asynccontextmanager
async def talking(url: str, *, heartbeat: float | None = None, **headers: str) -> AsyncIterator[Talk]:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(f"{url}/ws", heartbeat=heartbeat) as socket,
    ):
        yield Talk(socket)


async def gone(counting: CountingEnvironment) -> None:
    async with asyncio.timeout(10):
        await counting.is_empty.wait()


def code_of(told: dict[str, Any]) -> str:
    assert told["type"] == "error", told
    return str(told["data"]["code"])


async def test_an_attempt_is_reset_stepped_and_finished(counting: CountingEnvironment, url: str) -> None:
    async with talking(url) as talk:
        begun = await talk.reset(split="train", index=0, episode_id="e-1")
        assert begun["data"]["observation"]["instruction"] == "You can count.\n\nCount to 3."
        assert begun["data"]["observation"]["metadata"] == {"task": "to-3", "timeout_s": 600.0}
        assert (begun["data"]["reward"], begun["data"]["done"]) == (None, False)
        listed = await talk.ask({"type": "step", "data": {"type": "list_tools"}})
        tools = {tool["name"]: tool for tool in listed["data"]["observation"]["tools"]}
        assert list(tools) == ["add", "break", "sleep", "finish"]
        assert tools["add"]["input_schema"]["required"] == ["by"]
        assert tools["break"]["input_schema"] == {"type": "object", "properties": {}}
        one = (await talk.call("add", by=3))["data"]
        assert (one["observation"]["result"]["data"], one["reward"], one["done"]) == ("3", 0.25, False)
        wrong = (await talk.call("subtract", by=1))["data"]
        assert (wrong["observation"]["result"]["is_error"], wrong["reward"], wrong["done"]) == (True, None, False)
        assert await talk.ask({"type": "state"}) == {"type": "state", "data": {"episode_id": "e-1", "step_count": 2}}
        end = (await talk.call("finish"))["data"]
        assert (end["reward"], end["done"]) == (0.75, True), "what the steps have not given of 1.0"
        assert end["metadata"] == {"share": 1.0, "metrics": {"total": 3.0}, "report": "counted"}
        assert code_of(await talk.call("add", by=1)) == "EXECUTION_ERROR"
        again = await talk.reset(seed=2)
        assert again["data"]["observation"]["metadata"]["task"] == "to-5"
        state = await talk.ask({"type": "state"})
        assert (state["data"]["step_count"], state["data"]["episode_id"] != "e-1") == (0, True)
        assert (counting.num_opened, len(counting.rooms)) == (2, 1), "a reset closes the room before"


async def test_a_step_may_end_the_attempt(url: str) -> None:
    async with talking(url) as talk:
        await talk.reset(split="held_out", index=0)
        await talk.call("add", by=1)
        end = (await talk.call("add", by=9))["data"]
        assert (end["reward"], end["done"]) == (-1.25, True)


async def test_what_cannot_be_answered_says_why_and_the_connection_goes_on(url: str) -> None:
    async with talking(url) as talk:
        assert code_of(await talk.ask("{")) == "INVALID_JSON"
        assert code_of(await talk.ask("[]")) == "UNKNOWN_TYPE"
        assert code_of(await talk.ask({"type": ["reset"]})) == "UNKNOWN_TYPE"
        assert code_of(await talk.ask({"type": "mcp", "data": {}})) == "UNKNOWN_TYPE"
        refused = await talk.reset(sead=1)
        assert code_of(refused) == "VALIDATION_ERROR"
        assert refused["data"]["errors"][0]["loc"] == ["data", "sead"]
        assert code_of(await talk.call("add", by=1)) == "EXECUTION_ERROR"
        assert (
            "send a reset first"
            in (await talk.ask({"type": "step", "data": {"type": "list_tools"}}))["data"]["message"]
        )
        assert "has 3 tasks, not number 3" in (await talk.reset(split="train", index=3))["data"]["message"]
        assert "no task in split 'test'" in (await talk.reset(split="test", index=0))["data"]["message"]
        assert "four is not attempted here" in (await talk.reset(split="train", index=1))["data"]["message"]
        assert (await talk.reset())["data"]["observation"]["metadata"]["task"] == "to-3"


@pytest.mark.parametrize(("tool", "reason"), [("break", "the abacus broke"), ("finish", "the referee is asleep")])
async def test_an_environment_that_fails_ends_the_connection(
    counting: CountingEnvironment, url: str, tool: str, reason: str
) -> None:
    async with talking(url) as talk:
        await talk.reset(seed=2)
        await talk.call("add", by=5)
        failed = await talk.call(tool)
        assert (code_of(failed), failed["data"]["message"]) == ("SESSION_ERROR", reason)
        assert (await talk.socket.receive(timeout=10)).type is aiohttp.WSMsgType.CLOSE
    assert counting.rooms == set()


async def test_a_room_goes_with_its_connection_in_the_middle_of_a_step(counting: CountingEnvironment, url: str) -> None:
    async with talking(url) as talk:
        await talk.reset()
        await talk.socket.send_json({"type": "step", "data": {"tool_name": "sleep"}})
        await counting.is_waiting.wait()
        assert len(counting.rooms) == 1
    await gone(counting)


async def test_pings_are_answered_while_a_step_takes_its_time(url: str) -> None:
    async with talking(url, heartbeat=0.6) as talk:
        await talk.reset()
        assert (await talk.call("sleep", s=1.2))["type"] == "observation"


async def test_rooms_are_closed_when_the_server_stops(counting: CountingEnvironment) -> None:
    async with contextlib.AsyncExitStack() as clients:
        async with serve_openenv(counting) as url:
            talk = await clients.enter_async_context(talking(url))
            await talk.reset()
            await talk.socket.send_json({"type": "step", "data": {"tool_name": "sleep"}})
            await counting.is_waiting.wait()
        assert counting.rooms == set()


async def test_no_more_connections_than_rooms(counting: CountingEnvironment, url: str) -> None:
    async with talking(url) as one, talking(url) as two:
        await one.reset()
        await two.reset()
        async with talking(url) as three:
            refused = await three.answer()
            assert code_of(refused) == "CAPACITY_REACHED"
            assert (refused["data"]["active_sessions"], refused["data"]["max_sessions"]) == (2, 2)
        environment = OpenEnvEnvironment(max_wait_s=0.0)
        room = await environment.room((await environment.tasks(url))[0].ref, gateway="", programs={})
        with pytest.raises(EnvBusy, match="all 2 rooms are taken"):
            await room.open()
        await room.close()
        patient = OpenEnvEnvironment(max_wait_s=30.0)
        room = await patient.room((await patient.tasks(url))[0].ref, gateway="", programs={})
        opening = asyncio.create_task(room.open())
        await one.socket.send_json({"type": "close"})
        await one.socket.receive(timeout=10)
        assert (await opening).instruction.endswith("Count to 3.")
        await room.close()
        async with talking(url) as four:
            assert (await four.reset())["type"] == "observation"


async def test_who_is_silent_or_does_not_wait_for_answers_is_cut_off(counting: CountingEnvironment) -> None:
    async with serve_openenv(counting, idle_s=0.2) as url:
        async with talking(url) as silent:
            await silent.reset()
            assert "silent for 0.2 s" in (await silent.answer())["data"]["message"]
        async with talking(url) as hasty:
            await hasty.reset()
            for _ in range(20):
                await hasty.socket.send_json({"type": "step", "data": {"tool_name": "sleep"}})
            assert (await hasty.socket.receive(timeout=10)).type is aiohttp.WSMsgType.CLOSE
        await gone(counting)


async def test_tasks_and_schemas_are_told_over_http(url: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> Any:
            async with session.get(f"{url}{path}") as response:
                assert response.status == 200
                return await response.json()

        async def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            async with session.post(f"{url}/counting/{path}", json=body) as response:
                return response.status, await response.json()

        assert await get("/health") == {"status": "healthy"}
        assert (await get("/metadata"))["name"] == "counting"
        assert await get("/state") == {"episode_id": None, "step_count": 0}
        assert set(await get("/schema")) == {"action", "observation", "state"}
        assert await get("/list_environments") == ["counting"]
        assert await get("/counting/splits") == [
            {"name": "train", "type": "train"},
            {"name": "held_out", "type": "test"},
        ]
        first = {"id": "to-3", "index": 0, "instruction": "Count"}
        second = {"id": "to-4", "index": 1, "instruction": "Count"}
        third = {"id": "to-5", "index": 2, "instruction": "Count"}
        tasks = {"tasks": [first, second, third], "env_name": "counting"}
        assert await post("tasks", {"split": "train"}) == (200, tasks)
        assert await post("num_tasks", {"split": "held_out"}) == (200, {"num_tasks": 1})
        assert await post("task", {"split": "train", "index": 1}) == (200, {"task": second})
        assert await post("task_range", {"split": "train", "start": 1}) == (200, {"tasks": [second, third]})
        assert (await post("task", {"split": "train", "index": 3}))[0] == 400
        assert (await post("tasks", {"split": "test"}))[1] == {
            "detail": "there is no such split; there are train, held_out"
        }
        assert (await post("task", {"split": "train", "index": -1}))[0] == 422


async def test_a_web_page_and_a_stranger_are_refused(counting: CountingEnvironment, url: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        async with talking(url, Origin="http://127.0.0.1"):
            pass
    async with serve_openenv(counting, key="k-1") as locked:
        for given in ("", "Bearer k-2", "Bearer k-1é"):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                async with talking(locked, Authorization=given):
                    pass
        async with talking(locked, Authorization="Bearer k-1") as talk:
            assert (await talk.reset())["type"] == "observation"
    with pytest.raises(ConfigError, match="set a key"):
        async with serve_openenv(counting, host="0.0.0.0"):
            pass


async def test_a_task_that_has_a_tool_of_our_name_is_not_served() -> None:
    async with serve_openenv(CountingEnvironment(tool="finish")) as url, talking(url) as talk:
        assert "a tool 'finish' of its own" in (await talk.reset())["data"]["message"]


async def test_our_own_client_attempts_what_our_server_serves(counting: CountingEnvironment, url: str) -> None:
    environment = OpenEnvEnvironment()
    tasks = await environment.tasks(url.replace("http", "ws"))
    assert [(task.ref.name, task.split) for task in tasks] == [
        ("train/0", "train"),
        ("train/1", "train"),
        ("train/2", "train"),
        ("held_out/0", "held_out"),
    ]
    room = await environment.room(tasks[3].ref, gateway="", programs={})
    try:
        opening = await room.open()
        assert opening.instruction == "You can count.\n\nCount to 7."
        assert [tool.name for tool in opening.tools] == ["add", "break", "sleep", "finish"]
        seen = await room.step(ToolCall(id="1", name="add", arguments='{"by": 7}'))
        assert (seen.content, seen.is_error, seen.is_done, seen.reward) == ("7", False, False, 0.25)
        end = await room.step(ToolCall(id="2", name="finish", arguments="{}"))
        assert (end.is_done, end.reward) == (True, 0.75)
        assert await room.evaluate() == Grade(reward=1.0, share=1.0, metrics={"steps": 2.0})
    finally:
        await room.close()
    await gone(counting)
    room = await environment.room(tasks[0].ref, gateway="", programs={})
    try:
        await room.open()
        with pytest.raises(EnvError, match="the abacus broke"):
            await room.step(ToolCall(id="1", name="break", arguments="{}"))
    finally:
        await room.close()

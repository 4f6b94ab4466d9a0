"""Servers of others as environments: what a scripted server says becomes tasks, observations, grades and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from openclaw_rl.envs.tasks.openenv.environment import MAX_ACTION_BYTES, OpenEnvEnvironment, reset_wish
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, TaskError
from openclaw_rl.types import Grade, Observation, TaskRef, ToolCall

ACTION = {"title": "Guess", "type": "object", "properties": {"number": {"type": "integer"}, "metadata": {}}}


@dataclass
class ScriptedServer:
    """Answers the messages of each connection one after the other; None closes it, "" says nothing."""

    answers: list[Any] = field(default_factory=list)
    http: dict[str, Any] = field(default_factory=dict)
    heard: list[dict[str, Any]] = field(default_factory=list)
    first: Any = None
    heartbeat: float | None = None

    def begun(self, *answers: Any) -> ScriptedServer:
        self.answers = [observed({"said": "Guess."}), *answers]
        return self

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/ws", self._talk)
        app.router.add_route("*", "/{path:.*}", self._tell)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _tell(self, request: web.Request) -> web.Response:
        told = {"schema": {"action": ACTION}, "metadata": {"name": "Guessing", "description": "A game."}, **self.http}
        if request.path[1:] not in told:
            return web.Response(status=404)
        body = told[request.path[1:]]
        if isinstance(body, web.Response):
            return body
        return web.Response(text=body) if isinstance(body, str) else web.json_response(body)

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=self.heartbeat)
        await socket.prepare(request)
        if self.first is not None:
            await socket.send_json(self.first)
            return socket
        for answer in self.answers:
            message = await socket.receive()
            if message.type is not WSMsgType.TEXT:
                return socket
            self.heard.append(message.json())
            if answer is None:
                return socket
            if answer != "":
                await (socket.send_str(answer) if isinstance(answer, str) else socket.send_json(answer))
        await socket.receive()
        return socket


def observed(observation: dict[str, Any], reward: Any = None, done: bool = False, **more: Any) -> dict[str, Any]:
    data = {"observation": {**observation, "metadata": {}}, "reward": reward, "done": done, **more}
    return {"type": "observation", "data": data}


def failed(code: str, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def call(number: int = 1) -> ToolCall:
    return ToolCall(id="c", name="step", arguments=f'{{"number": {number}}}')


@asynccontextmanager
async def room_of(server: ScriptedServer, name: str = "seed-3", answer_timeout_s: float = 10.0) -> AsyncIterator[Any]:
    async with server.listening() as url:
        environment = OpenEnvEnvironment(answer_timeout_s=answer_timeout_s, max_wait_s=0.0)
        ref = TaskRef(environment="openenv", source=url, name=name)
        room = await environment.room(ref, gateway="", programs={})
        try:
            yield room
        finally:
            await room.close()
            await room.close()


async def test_a_server_without_a_list_of_tasks_has_seeds() -> None:
    async with ScriptedServer(http={"list_environments": ["guess"]}).listening() as url:
        tasks = await OpenEnvEnvironment().tasks(f"{url}/#tasks=5")
        names = [(task.ref.name, task.split) for task in tasks]
        assert names[0] == ("seed-0", "train")
        assert names[4:] == [("seed-4", "train"), ("seed-1000000", "held_out"), ("seed-1000001", "held_out")]
        assert tasks[0].instruction == "Guessing: seed 0"
        assert len(await OpenEnvEnvironment().tasks(url)) == 64 + 16


async def test_splits_of_the_type_train_train_and_others_are_held_out() -> None:
    splits = [{"name": "train", "type": "train"}, {"name": "hard", "type": "validation"}]
    http = {"list_environments": ["guess"], "guess/splits": splits, "guess/num_tasks": {"num_tasks": 3}}
    async with ScriptedServer(http=http).listening() as url:
        tasks = await OpenEnvEnvironment().tasks(f"{url}#tasks=2")
        assert [(task.ref.name, task.split) for task in tasks] == [
            ("train/0", "train"),
            ("train/1", "train"),
            ("hard/0", "held_out"),
            ("hard/1", "held_out"),
        ]
    huge = {**http, "guess/num_tasks": {"num_tasks": 10**9}}
    async with ScriptedServer(http=huge).listening() as url:
        with pytest.raises(TaskError, match="write #tasks=N"):
            await OpenEnvEnvironment().tasks(url)
        assert len(await OpenEnvEnvironment().tasks(f"{url}#tasks=2")) == 4


@pytest.mark.parametrize(
    "source",
    [
        *("", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://h:port", "http://h?a=1"),
        *("http://h#tasks=x", "http://h#tasks=0", "http://h#taks=3", "http://h#tasks"),
    ],
)
async def test_a_source_that_is_no_address_is_refused(source: str) -> None:
    with pytest.raises(TaskError, match="#tasks=N"):
        await OpenEnvEnvironment().tasks(source)


async def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(TaskError) as caught:
        await OpenEnvEnvironment().tasks("ftp://me:secret@host/x")
    assert "host/x" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("http", "error", "reason"),
    [
        ({"schema": web.Response(status=404)}, TaskError, "it is no OpenEnv server"),
        ({"schema": "<html>"}, TaskError, "no JSON"),
        ({"schema": {"actions": {}}}, TaskError, "does not answer as an OpenEnv server does"),
        ({"list_environments": "guess"}, TaskError, "no JSON"),
        ({"list_environments": {"guess": 1}}, TaskError, "does not answer as an OpenEnv server does"),
        ({"schema": web.Response(status=500)}, EnvError, "answered 500"),
        (
            {"list_environments": ["guess"], "guess/splits": [{"name": "train", "type": "train"}]},
            TaskError,
            "does not say how many tasks",
        ),
    ],
    ids=str,
)
async def test_what_is_no_openenv_server_is_said(http: dict[str, Any], error: type[Exception], reason: str) -> None:
    async with ScriptedServer(http=http).listening() as url:
        with pytest.raises(error, match=reason):
            await OpenEnvEnvironment().tasks(url)


async def test_a_server_that_is_not_there_is_gone() -> None:
    async with ScriptedServer().listening() as url:
        pass
    with pytest.raises(EnvGone, match="is the OpenEnv server running"):
        await OpenEnvEnvironment().tasks(url)


@pytest.mark.parametrize(
    "name", ["seed", "seed-", "seed--1", "seed-x", "train-3", "/3", "train/", "train/-1", "seed-³"]
)
def test_names_of_tasks_are_checked(name: str) -> None:
    with pytest.raises(TaskError, match="SPLIT/INDEX or seed-N"):
        reset_wish(name)


@pytest.mark.parametrize(
    ("name", "wish"),
    [("seed-3", {"seed": 3}), ("test/12", {"split": "test", "index": 12}), ("a/b/1", {"split": "a/b", "index": 1})],
)
def test_a_task_is_asked_for_by_its_seed_or_its_place(name: str, wish: dict[str, Any]) -> None:
    assert reset_wish(name) == wish


async def test_programs_have_no_place_there() -> None:
    ref = TaskRef(environment="openenv", source="http://127.0.0.1:1", name="seed-0")
    with pytest.raises(TaskError, match="use the built-in agent"):
        await OpenEnvEnvironment().room(ref, gateway="", programs={"/opt/codex": Path("/opt/codex")})
    async with room_of(ScriptedServer()) as room:
        with pytest.raises(TaskError, match="no box"):
            await room.run("ls", timeout_s=1.0, env={})
        with pytest.raises(TaskError, match="no solution"):
            await room.solve()


async def test_an_attempt_is_worth_the_sum_of_its_rewards() -> None:
    server = ScriptedServer().begun(
        observed({"said": "wrong"}, -0.25),
        observed({"said": "cold", "tries": 2}),
        observed({"said": "right"}, True, True),
    )
    async with room_of(server) as room:
        opening = await room.open()
        assert [message.content for message in opening.messages] == [
            "You act in an environment by calling tools. Guessing: A game.",
            "Guess.",
        ]
        (tool,) = opening.tools
        assert (tool.name, tool.parameters["properties"]) == ("step", {"number": {"type": "integer"}})
        assert await room.step(call(5)) == Observation(content="wrong", reward=-0.25)
        assert (await room.evaluate()).reward == -0.25
        assert await room.step(call(6)) == Observation(content='{\n  "said": "cold",\n  "tries": 2\n}')
        assert await room.step(call(7)) == Observation(content="right", reward=1.0, is_done=True)
        over = await room.step(call(8))
        assert (over.is_error, over.is_done) == (True, True)
        assert await room.evaluate() == Grade(reward=0.75, share=1.0, metrics={"steps": 3.0})
    assert server.heard[0] == {"type": "reset", "data": {"seed": 3}}
    assert [heard["data"] for heard in server.heard[1:4]] == [{"number": 5}, {"number": 6}, {"number": 7}]


async def test_who_does_nothing_earns_nothing_but_an_end_without_a_reward_is_the_servers_failure() -> None:
    async with room_of(ScriptedServer().begun(observed({}, None, True))) as room:
        await room.open()
        assert (await room.evaluate()).reward == 0.0
        await room.step(call())
        assert "without any reward" in (await room.evaluate()).failure


@pytest.mark.parametrize("arguments", ["{", "[1]", "3", "{" + " " * MAX_ACTION_BYTES + "}"], ids=lambda text: text[:3])
async def test_arguments_that_cannot_be_sent_are_the_agents_fault(arguments: str) -> None:
    server = ScriptedServer().begun(observed({"said": "wrong"}))
    async with room_of(server) as room:
        await room.open()
        assert (await room.step(ToolCall(id="c", name="step", arguments=arguments))).is_error
        missing = await room.step(ToolCall(id="c", name="shell", arguments="{}"))
        assert (missing.is_error, missing.content) == (True, "There is no tool 'shell'; there is step.")
        assert (await room.step(call())).content == "wrong"
    assert len([heard for heard in server.heard if heard["type"] == "step"]) == 1


async def test_an_action_that_is_refused_is_seen_by_the_agent() -> None:
    invalid = failed("VALIDATION_ERROR", "Invalid", errors=[{"loc": ["number"], "msg": "not a number"}])
    async with room_of(ScriptedServer().begun(invalid, failed("EXECUTION_ERROR", "unlucky"))) as room:
        await room.open()
        assert await room.step(call()) == Observation(content="Invalid: number: not a number", is_error=True)
        assert await room.step(call()) == Observation(content="unlucky", is_error=True)
        assert await room.evaluate() == Grade(reward=0.0, metrics={"steps": 0.0})


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (failed("CAPACITY_REACHED", "full"), EnvBusy, "no room free: full"),
        (failed("FACTORY_ERROR"), EnvError, "FACTORY_ERROR"),
        (failed("SESSION_ERROR"), EnvError, "SESSION_ERROR"),
        (failed("UNKNOWN_TYPE"), EnvError, "UNKNOWN_TYPE"),
        (failed("OUT_OF_CHEESE"), EnvError, "OUT_OF_CHEESE"),
        (None, EnvGone, "was lost in the middle"),
        ("gibberish", EnvError, "does not answer as an OpenEnv server does"),
        ({"type": "state", "data": {}}, EnvError, "does not answer as an OpenEnv server does"),
        ('{"type":"observation","data":{"observation":{},"reward":NaN}}', EnvError, "does not answer as an OpenEnv"),
        ({"type": "observation", "data": {"observation": {}, "reward": "much"}}, EnvError, "does not answer as an"),
    ],
    ids=str,
)
async def test_a_server_that_fails_says_nothing_of_the_agent(answer: Any, error: type[EnvError], reason: str) -> None:
    async with room_of(ScriptedServer(answers=[answer])) as room:
        with pytest.raises(error, match=reason):
            await room.open()
    async with room_of(ScriptedServer().begun(answer)) as room:
        await room.open()
        with pytest.raises(error, match=reason):
            await room.step(call())
        with pytest.raises(EnvError, match=r"lost in the middle|still owes"):
            await room.step(call())


async def test_a_task_that_cannot_be_begun_is_no_failure_of_the_agent() -> None:
    for answer in (failed("EXECUTION_ERROR", "no such split"), failed("VALIDATION_ERROR"), observed({}, None, True)):
        async with room_of(ScriptedServer(answers=[answer])) as room:
            with pytest.raises(EnvError, match=r"cannot begin the task|before it began"):
                await room.open()


async def test_a_server_that_refuses_before_it_is_asked_is_understood() -> None:
    async with room_of(ScriptedServer(first=failed("CAPACITY_REACHED", "1 of 1 in use"))) as room:
        with pytest.raises(EnvBusy, match="1 of 1 in use"):
            await room.open()


async def test_an_answer_that_comes_late_is_not_taken_for_another() -> None:
    async with room_of(ScriptedServer().begun("", observed({"said": "late"})), answer_timeout_s=0.2) as room:
        await room.open()
        with pytest.raises(EnvError, match=r"no answer within 0\.2 s"):
            await room.step(call())
        with pytest.raises(EnvError, match="still owes"):
            await room.step(call())
    async with room_of(ScriptedServer().begun("", observed({"said": "late"}))) as room:
        await room.open()
        step = asyncio.create_task(room.step(call()))
        await asyncio.sleep(0.05)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        with pytest.raises(EnvError, match="still owes"):
            await room.step(call())


async def test_the_server_finds_the_agent_still_there_when_it_thinks_long() -> None:
    """This server cuts off who does not answer a ping within 0.3 s."""
    server = ScriptedServer(heartbeat=0.6).begun(observed({"said": "right"}, 1.0, True))
    async with room_of(server) as room:
        await room.open()
        await asyncio.sleep(1.2)
        assert (await room.step(call())).is_done


async def test_a_closed_room_is_no_place_to_act() -> None:
    async with room_of(ScriptedServer().begun()) as room:
        await room.open()
        await room.close()
        with pytest.raises(EnvError, match="no connection"):
            await room.step(call())


TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
CALLS = {"properties": {"type": {"const": "call_tool"}, "tool_name": {}}}


@pytest.mark.parametrize(
    ("observation", "content", "is_error"),
    [
        ({"tool_name": "add", "result": {"content": [{"type": "text", "text": "3"}]}}, "3", False),
        ({"tool_name": "add", "result": {"content": [], "is_error": True}}, "", True),
        ({"tool_name": "add", "error": {"error_type": "timeout", "message": "too slow"}}, "too slow", True),
        ({"echo": "plain"}, "plain", False),
    ],
)
async def test_tools_that_a_server_lists_are_called(observation: dict[str, Any], content: str, is_error: bool) -> None:
    server = ScriptedServer(http={"schema": {"action": CALLS}})
    server.begun(observed({"tools": [TOOL]}), observed(observation, 0.5))
    async with room_of(server) as room:
        (tool,) = (await room.open()).tools
        assert (tool.name, tool.description, tool.parameters) == ("add", "Adds.", {"type": "object"})
        seen = await room.step(ToolCall(id="c", name="add", arguments='{"a": 1}'))
        assert seen == Observation(content=content, is_error=is_error, reward=0.5)
    assert [heard["data"] for heard in server.heard[1:3]] == [
        {"type": "list_tools"},
        {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}},
    ]


@pytest.mark.parametrize(
    "answer", [observed({"tools": []}), observed({"tools": [{}]}), observed({}), failed("VALIDATION_ERROR")], ids=str
)
async def test_a_server_that_lists_no_tools_has_failed(answer: Any) -> None:
    async with room_of(ScriptedServer(http={"schema": {"action": CALLS}}).begun(answer)) as room:
        with pytest.raises(EnvError, match=r"does not list its tools|lists no tool"):
            await room.open()


async def test_a_tool_that_the_server_cannot_reach_is_not_the_agents_fault() -> None:
    lost = observed({"tool_name": "add", "error": {"error_type": "transport_error", "message": "no route"}})
    server = ScriptedServer(http={"schema": {"action": CALLS}}).begun(observed({"tools": [TOOL]}), lost)
    async with room_of(server) as room:
        await room.open()
        with pytest.raises(EnvError, match="no route"):
            await room.step(ToolCall(id="c", name="add", arguments="{}"))

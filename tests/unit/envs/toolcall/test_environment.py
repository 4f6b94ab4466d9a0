"""The tool-call track from end to end: functions of a tools JSON, the interpreter, and MCP servers, in real boxes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.checking import check_task
from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.toolcall.environment import ToolcallEnvironment
from openclaw_rl.envs.toolcall.families.registry import FAMILIES
from openclaw_rl.errors import ConfigError, TaskError
from openclaw_rl.protocols import Room
from openclaw_rl.types import Observation, Opening, TaskRef, ToolCall

FAKES = Path(__file__).parents[3] / "fakes"
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = {
    "tools": [
        {"type": "function", "function": {"name": "age", "parameters": NAMED}, "python": "mine.py:age"},
        {"name": "shout", "parameters": NAMED, "command": ["./shout.sh"]},
        {"name": "python"},
    ],
    "mcpServers": {"fake": {"command": sys.executable, "args": ["-I", "server.py"]}},
}
MINE = """
def age(name):
    if name == "Nobody":
        raise KeyError(name)
    return {"Anna": 31}[name]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "shout.sh").write_text("#!/bin/sh\ntr a-z A-Z\n")
    (tmp_path / "shout.sh").chmod(0o755)
    (tmp_path / "server.py").write_text((FAKES / "mcp_server.py").read_text())
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    rows = [
        {"name": "sum", "question": "How old is Anna in ten years?", "answer": 41, "split": "train"},
        {"name": "bare", "question": "What is 1 + 1?", "answer": "2", "tools": [], "split": "train"},
        {"name": "strange", "question": "?", "answer": "x", "tools": ["telescope"], "split": "train"},
    ]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def made(sandbox: Sandbox, folder: Path, **rollout: Any) -> ToolcallEnvironment:
    return ToolcallEnvironment(RolloutConfig(tools_config=folder / "tools.json", **rollout), sandbox)


def ref(folder: Path, name: str, source: str = "tasks.jsonl") -> TaskRef:
    return TaskRef(environment="toolcall", source=str(folder / source), name=name)


@asynccontextmanager
async def opened(environment: ToolcallEnvironment, task: TaskRef) -> AsyncIterator[tuple[Room, Opening]]:
    room = await environment.room(task, gateway="", programs={})
    try:
        yield room, await room.open()
    finally:
        await room.close()


async def use(room: Room, tool: str, **arguments: object) -> Observation:
    return await room.step(ToolCall(id="1", name=tool, arguments=json.dumps(arguments)))


async def test_functions_an_interpreter_and_a_server_work_side_by_side(sandbox: Sandbox, folder: Path) -> None:
    async with opened(made(sandbox, folder), ref(folder, "sum")) as (room, opening):
        names = [tool.name for tool in opening.tools]
        assert {"age", "shout", "python", "submit", "echo", "add"} <= set(names)
        assert opening.messages[-1].content == "How old is Anna in ten years?"
        assert (await use(room, "age", name="Anna")).content == "31"
        failed = await use(room, "age", name="Nobody")
        assert failed.is_error
        assert "KeyError" in failed.content
        assert (await use(room, "shout", name="hey")).content.strip() == '{"NAME": "HEY"}'
        await use(room, "python", code="age = 31")
        assert (await use(room, "python", code="print(age + 10)")).content.strip() == "41"
        assert (await use(room, "echo", text="to a server")).content == "to a server"
        missing = await use(room, "age")
        assert (missing.is_error, missing.is_done) == (True, False)
        assert (await use(room, "submit", answer="She will be 41.")).is_done
        grade = await room.evaluate()
    assert (grade.reward, grade.share) == (1.0, 1.0)
    assert grade.metrics["faulty_calls"] == 1.0
    assert grade.metrics["useful_calls"] == 5.0


async def test_a_task_has_the_tools_that_it_wants(sandbox: Sandbox, folder: Path) -> None:
    async with opened(made(sandbox, folder), ref(folder, "bare")) as (_, opening):
        assert [tool.name for tool in opening.tools] == ["submit"]
    with pytest.raises(TaskError, match=r"strange wants the tool 'telescope'; .* have calculator, python, age, shout"):
        await made(sandbox, folder).room(ref(folder, "strange"), gateway="", programs={})


async def test_tasks_of_a_file_are_fit_to_train_on(sandbox: Sandbox, folder: Path) -> None:
    assert (await check_task(made(sandbox, folder), ref(folder, "sum"))).problem == ""


@pytest.mark.parametrize(
    "source", [f"{family.name}-{level}" for family in FAMILIES.values() for level in (1, family.num_levels)]
)
async def test_shipped_families_are_fit_to_train_on(tmp_path: Path, source: str) -> None:
    environment = ToolcallEnvironment(RolloutConfig(), BubblewrapSandbox(tmp_path))
    tasks = await environment.tasks(source)
    for task in tasks[::60]:
        checked = await check_task(environment, task.ref)
        assert checked.problem == "", (task, checked.report)


async def test_the_reward_of_a_source_may_be_the_shaped_one(sandbox: Sandbox, folder: Path) -> None:
    (folder / "shaped.json").write_text('{"tasks": "tasks.jsonl", "reward": "shaped"}')
    rewards = []
    for calls in (0, 3):
        async with opened(made(sandbox, folder), ref(folder, "sum", "shaped.json")) as (room, _):
            for number in range(calls):
                await use(room, "python", code=f"print({number})")
            await use(room, "submit", answer="12")
            rewards.append((await room.evaluate()).reward)
    assert rewards == [pytest.approx(-1.1), pytest.approx(-0.95)]


async def test_sources_say_how_many_tasks_they_have(tmp_path: Path) -> None:
    environment = ToolcallEnvironment(RolloutConfig(), BubblewrapSandbox(tmp_path))
    for source in environment.sources():
        if not source.name.startswith("gym:"):
            splits = [task.split for task in await environment.tasks(source.name)]
            assert (splits.count("train"), splits.count("held_out")) == (source.num_train, source.num_held_out), source
    with pytest.raises(TaskError, match="there is no source 'suns'"):
        await environment.tasks("suns")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ('[{"name": "a"}]', "a must say how it is called"),
        ('[{"name": "a b", "python": "x.py:f"}]', "tools.0.name"),
        ('[{"name": "a", "python": "x.py"}]', "tools.0.python"),
        ('[{"name": "a", "python": "x.py:f", "command": ["y"]}]', "must say how it is called"),
        ('[{"name": "a", "python": "x.py:f", "speed": 5}]', "tools.0.speed"),
        ('[{"name": "a", "python": "x.py:f"}, {"name": "a", "command": ["y"]}]', "two entries have the same name"),
        ('{"mcpServers": {"a": {}}}', "either a command or a url"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"K": "${K}"}}}}', "is not filled in here"),
    ],
)
def test_a_tools_file_that_is_wrong_is_told(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "tools.json").write_text(text)
    with pytest.raises(ConfigError, match=r"rollout.tools_config .*tools\.json") as caught:
        made(BubblewrapSandbox(tmp_path), tmp_path)
    assert why in str(caught.value)


def test_a_tools_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        made(BubblewrapSandbox(tmp_path), tmp_path)

"""A room of the terminal track: the tools, the limits, and the reward of what is left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.envs.tasks.harbor.verifying import Verified
from openclaw_rl.envs.terminal.environment import TerminalEnvironment
from openclaw_rl.envs.terminal.room import TerminalRoom, command_in, graded
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Observation, TaskRef, ToolCall
from tests.fakes.harbor_tasks import PLAIN, write_task

Open = Callable[[Mapping[str, str | None]], Awaitable[TerminalRoom]]


@pytest_asyncio.fixture
async def room_of(environment: TerminalEnvironment, tmp_path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def make(files: Mapping[str, str | None]) -> TerminalRoom:
            write_task(tmp_path / "tasks" / "one", files)
            ref = TaskRef(environment="terminal", source=str(tmp_path / "tasks"), name="one")
            room = await environment.room(ref, gateway="", programs={})
            stack.push_async_callback(room.close)
            return room

        yield make


async def call(room: TerminalRoom, name: str, **arguments: object) -> Observation:
    return await room.step(ToolCall(id="1", name=name, arguments=json.dumps(arguments)))


async def test_an_attempt_in_a_shell(room_of: Open) -> None:
    room = await room_of({"task.toml": f"{PLAIN['task.toml']}\n[agent]\ntimeout_sec = 45\n"})
    opening = await room.open()
    assert "in the directory /app." in opening.messages[0].content
    assert opening.messages[-1].content == "Write done into state.txt."
    assert [tool.name for tool in opening.tools] == ["shell", "write_file", "view"]
    assert (opening.workdir, opening.timeout_s) == ("/app", 45.0)
    assert (await call(room, "shell", command="cd / && cat app/state.txt")).content == "todo"
    assert (await call(room, "shell", command="pwd")).content == "/"
    assert (await call(room, "write_file", path="state.txt", content="done\n")).content == "wrote /app/state.txt"
    assert (await call(room, "view", path="state.txt")).content == "     1\tdone"
    grade = await room.evaluate()
    assert (grade.reward, grade.share, grade.metrics) == (1.0, 1.0, {"reward": 1.0})


async def test_calls_are_limited(room_of: Open) -> None:
    room = await room_of({})
    await room.open()
    for _ in range(6):
        assert not (await call(room, "shell", command="true")).is_done
    seen = await call(room, "shell", command="echo done > state.txt")
    assert (seen.content, seen.is_error, seen.is_done) == ("[no more than 6 calls]", True, True)
    assert (await room.evaluate()).reward == -1.0
    await room.open()
    assert not (await call(room, "shell", command="true")).is_done


async def test_tools_that_are_not_offered_are_none(room_of: Open) -> None:
    room = await room_of({})
    await room.open()
    for name in ("edit", "submit", "dance"):
        seen = await call(room, name, answer="x")
        assert (seen.is_error, seen.is_done) == (True, False)
        assert f"there is no tool {name!r}; call shell or write_file or view" in seen.content


async def test_one_command_may_be_the_answer(room_of: Open) -> None:
    toml = PLAIN["task.toml"].replace('runs_on = "machine"', 'runs_on = "machine"\nopening = "one_command"')
    room = await room_of({"task.toml": toml})
    opening = await room.open()
    assert [tool.name for tool in opening.tools] == ["submit"]
    assert [message.role for message in opening.messages[:3]] == ["system", "user", "assistant"]
    seen = await call(room, "submit", answer="So:\n```bash\necho done > state.txt\n```\n")
    assert (seen.content, seen.is_done, seen.is_error) == ("[no output]", True, False)
    assert (await room.evaluate()).reward == 1.0
    await room.open()
    seen = await call(room, "submit", answer="I would\nrather not.")
    assert (seen.is_done, seen.is_error) == (True, True)
    assert (await room.evaluate()).reward == -1.0


async def test_an_opening_that_is_none_is_refused(room_of: Open) -> None:
    with pytest.raises(TaskError, match="opening is one of shell, one_command; got 'chess'"):
        await room_of({"task.toml": '[metadata.openclaw_rl]\nruns_on = "machine"\nopening = "chess"'})


STEPS = {
    "task.toml": f"{PLAIN['task.toml']}\n[[steps]]\nname = 'one'\nmin_reward = 1.0\n[[steps]]\nname = 'two'\n",
    "instruction.md": None,
    "tests/test.sh": "#!/bin/bash\n[ -e $(cat /tests/name) ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n",
    "steps/one/instruction.md": "Make one.\n",
    "steps/one/tests/name": "one",
    "steps/two/instruction.md": "Make two.\n",
    "steps/two/tests/name": "two",
}


async def test_the_next_step_is_told_when_one_is_done(room_of: Open) -> None:
    room = await room_of(STEPS)
    opening = await room.open()
    assert opening.tools[-1].name == "next_step"
    assert opening.timeout_s == 1200.0
    with pytest.raises(TaskError, match="which the builtin harness alone understands"):
        await room.run("true", timeout_s=5, env={})
    await call(room, "shell", command="touch one")
    assert (await call(room, "next_step")).content == "Make two."
    assert "this is the last step" in (await call(room, "next_step")).content
    assert (await room.run("touch two", timeout_s=30, env={})).exit_code == 0
    assert (await room.evaluate()).reward == 1.0


async def test_a_step_that_is_not_done_ends_the_attempt(room_of: Open) -> None:
    room = await room_of(STEPS)
    await room.open()
    seen = await call(room, "next_step")
    assert (seen.content, seen.is_done) == ("The step was not done well enough to go on.", True)
    assert (await room.evaluate()).reward == -1.0


async def test_a_verifier_that_fails_is_no_reward(room_of: Open) -> None:
    room = await room_of({"tests/test.sh": "#!/bin/bash\nexit 1\n"})
    await room.open()
    grade = await room.evaluate()
    assert grade.reward is None
    assert "left no reward" in grade.failure


@pytest.mark.parametrize(
    ("own", "reward", "share"),
    [(0.0, -1.0, 0.0), (0.25, -0.5, 0.25), (1.0, 1.0, 1.0), (7.0, 7.0, 1.0), (-2.0, -2.0, 0.0)],
)
def test_a_share_becomes_a_reward_and_any_other_number_is_one(own: float, reward: float, share: float) -> None:
    grade = graded(Verified(rewards={"reward": own, "style": 3.0}, output="said"))
    assert (grade.reward, grade.share, grade.report) == (reward, share, "said")
    assert grade.metrics == {"reward": own, "style": 3.0}


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ('{"answer": "ls -l"}', "ls -l"),
        ('{"answer": "```\\nls\\npwd\\n```"}', "ls\npwd"),
        ('{"answer": "First:\\n```sh\\nls\\n```\\nthen\\n```\\npwd\\n```"}', "ls"),
        ('{"answer": "ls\\npwd"}', ""),
        ('{"answer": "a\\u0000b"}', ""),
        ('{"answer": 5}', ""),
        ('["ls"]', ""),
        ("ls", ""),
    ],
)
def test_a_command_is_what_is_fenced_or_one_line(arguments: str, command: str) -> None:
    assert command_in(arguments) == command

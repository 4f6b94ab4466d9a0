"""Real agent programs at work in a real box, which reaches nothing but the real server: what they do, and what is kept.

The engine is scripted: it has each program run one command with the program's own tool, and then say what came of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.harness.program import ProgramHarness
from openclaw_rl.envs.registry import EnvMeans, make_harness
from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.sandbox.making import make_sandbox
from openclaw_rl.errors import EnvError, HarnessFailed
from openclaw_rl.types import Door, Opening, Session, Turn
from tests.clients.programs import SHELF
from tests.fakes.rooms import BoxRoom, opening
from tests.server import Server
from tests.wire.asking import eventually, reader, replies

pytestmark = [pytest.mark.envs, pytest.mark.timeout(900)]

LOOKS = "tee found.txt <notes.txt; bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>&1; env | sort"
"""Uses the task's files, tries to get out, and shows what the agent's commands see."""
LIMITS = BoxLimits(memory_mb=4096)


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


CALLS: Mapping[str, str] = {
    "openclaw": call("exec", command=LOOKS),
    "codex": call("exec_command", cmd=LOOKS),
    "claude-code": call("Bash", command=LOOKS, description="looks"),
    "opencode": call("bash", command=LOOKS, description="looks"),
    "mini-swe-agent": call("bash", command=LOOKS),
}
DONE = {"mini-swe-agent": call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")}


def script(name: str) -> str:
    return replies(
        (r"<tool_response>[\s\S]*a fine note", DONE.get(name, "It says: a fine note.")),
        ("(?i)a title", "Notes"),
        (r"look \*into\* 'notes'", CALLS[name]),
        (".", "Very well."),
    )


@pytest.fixture(params=CALLS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(name: str, tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", "engine.context_window=65536", script(name)) as running:
        yield running


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    found = make_sandbox(tmp_path / "boxes")
    if lacks := found.lacks():
        pytest.skip(lacks)
    return found


@pytest.fixture
def harness(name: str, sandbox: Sandbox) -> ProgramHarness:
    made = make_harness(name, EnvMeans(rollout=RolloutConfig(), sandbox=sandbox, cache=SHELF.folder.parent))
    assert isinstance(made, ProgramHarness)
    try:
        made.install()
    except EnvError as error:
        pytest.skip(f"{name} cannot be installed here: {error}")
    return made


@asynccontextmanager
async def room(sandbox: Sandbox, harness: ProgramHarness, gateway: str, folder: Path) -> AsyncIterator[BoxRoom]:
    (folder / "task").mkdir()
    (folder / "task" / "notes.txt").write_text("a fine note\n")
    spec = BoxSpec(
        trees={"/app": folder / "task"},
        read_only=harness.programs(),
        workdir="/app",
        limits=LIMITS,
        gateway=gateway,
    )
    box = await sandbox.start(spec)
    try:
        yield BoxRoom(box)
    finally:
        await box.close()


def task(timeout_s: float = 300.0) -> Opening:
    return replace(
        opening("-- please look *into* 'notes'\n$(and) \"that\" is `all`", timeout_s=timeout_s), workdir="/app"
    )


def door(server: Server, *, model: str = "any@v0") -> Door:
    """Of a version: not every program would send a name of that form as it is."""
    return Door(url=server.url, key=server.key, model=model)


def contains(ids: Sequence[int], part: Sequence[int]) -> bool:
    return any(ids[at : at + len(part)] == part for at in range(len(ids)))


def kept(server: Server) -> list[tuple[Session, list[Turn]]]:
    rows = reader(server)
    return [(summary.session, rows.turns(summary.session.id)) for summary in rows.sessions()]


async def test_it_works_in_the_box_and_its_turns_are_exact(
    server: Server, sandbox: Sandbox, harness: ProgramHarness, tmp_path: Path
) -> None:
    async with room(sandbox, harness, server.url, tmp_path) as inside:
        assert await harness.attempt(inside, task(), door(server)) == "finished"
        assert await inside.box.read("/app/found.txt", max_bytes=100) == b"a fine note\n"
        files = (await inside.box.run("ls -A /app", timeout_s=10)).output.split()
    assert files == ["found.txt", "notes.txt"], "a program leaves nothing of its own among the task's files"

    turns = eventually(lambda: [turn for _, each in kept(server) for turn in each if turn.kind == "main"])
    looked, told = turns
    assert (looked.session, looked.parent) == (told.session, None)
    assert told.parent == looked.index
    assert {turn.skip for turn in turns} == {None}
    assert contains(told.prompt_ids, looked.completion.token_ids), "what was sampled is seen as it was sampled"
    said = [message.content for message in looked.messages if message.role == "user"]
    assert any(task().instruction in text for text in said)
    [state] = [state for state in reader(server).next_states(looked.session) if state.index == looked.index]
    [result] = [message.content for message in state.messages if message.role == "tool"]
    assert "a fine note" in result
    assert "unreachable" in result, "the box reaches nothing else"
    assert "LD_LIBRARY_PATH" not in result
    assert "PYTHON" not in result


async def test_a_program_that_never_reached_the_model_says_nothing_of_the_agent(
    server: Server, sandbox: Sandbox, harness: ProgramHarness, tmp_path: Path
) -> None:
    async with room(sandbox, harness, server.url, tmp_path) as inside:
        refused = f"(?s)^{harness.name} ended with exit status [1-9].*(is not served|selected model .any@v7.)"
        with pytest.raises(HarnessFailed, match=refused):
            await harness.attempt(inside, task(), door(server, model="any@v7"))
    assert [turn for _, turns in kept(server) for turn in turns if turn.kind == "main"] == []


async def test_the_clock_of_the_task_ends_it(
    server: Server, sandbox: Sandbox, harness: ProgramHarness, tmp_path: Path
) -> None:
    async with room(sandbox, harness, server.url, tmp_path) as inside:
        assert await harness.attempt(inside, task(timeout_s=0.3), door(server)) == "timeout"

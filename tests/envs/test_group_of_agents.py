"""`env run terminal --harness X`: a whole group of a real agent's attempts, from the program in the box to samples.

The engine is scripted, and so each attempt does the same. The task's own tests give each a reward of its own, or
nothing could be learned from comparing them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.env.installing import install_harness
from openclaw_rl.config import load_config
from openclaw_rl.errors import EnvError
from openclaw_rl.types import Sample, Turn
from tests.fakes.boxes import sandbox_or_skip
from tests.fakes.harbor_tasks import write_task
from tests.server import Server
from tests.wire.asking import eventually, reader, replies

pytestmark = [pytest.mark.envs, pytest.mark.timeout(1200)]

GROUP = 4
WRITES = "echo done > state.txt"


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


CALLS = {
    "openclaw": call("exec", command=WRITES),
    "mini-swe-agent": call("bash", command=WRITES),
}
ENDS = {"mini-swe-agent": call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")}
TASK = {
    "task.toml": """
[metadata.openclaw_rl]
runs_on = "machine"

[environment]
network_mode = "no-network"
memory_mb = 4096
storage_mb = 512
""",
    "instruction.md": "Let state.txt say that it is ready.\n",
    "tests/test.sh": """#!/bin/sh
luck=$(od -An -N2 -tu2 /dev/urandom)
[ "$(cat state.txt)" = done ] && awk "BEGIN { print 0.6 + $luck / 200000 }" > /logs/verifier/reward.txt
""",
}


@pytest.fixture(params=CALLS)
def name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sandbox_or_skip(tmp_path / "boxes")
    try:
        install_harness(load_config().config, request.param)
    except EnvError as error:
        pytest.skip(f"{request.param} cannot be installed here: {error}")
    return str(request.param)


@pytest.fixture
def server(name: str, tmp_path: Path) -> Iterator[Server]:
    script = replies(
        ("<tool_response>", ENDS.get(name, "It says done.")),
        (r"Let state\.txt say", CALLS[name]),
        (".", "Very well."),
    )
    with Server(tmp_path / "data", "engine.context_window=65536", script) as running:
        yield running


def test_every_main_turn_of_the_group_is_a_sample_with_the_advantage_of_its_attempt(
    name: str, server: Server, tmp_path: Path
) -> None:
    write_task(tmp_path / "tasks" / "say-done", TASK)
    words = ["env", "run", "terminal", "--harness", name, "--tasks", str(tmp_path / "tasks"), "--task", "say-done"]
    words += ["--num-episodes", str(GROUP), "--group-size", str(GROUP), "--parallel-envs", "2", "--json"]
    command = [sys.executable, "-m", "openclaw_rl", *words, "--data-dir", str(server.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(done.stdout)["attempts"]
    rewards = {one["attempt"]: one["grade"]["reward"] for one in made}
    assert sorted(rewards) == list(range(GROUP))
    assert all(reward is not None and 0.2 <= reward < 1 for reward in rewards.values()), "each made the file"
    assert len(set(rewards.values())) > 1

    rows = reader(server)
    turns: dict[int, list[Turn]] = {number: [] for number in range(GROUP)}
    for summary in rows.sessions():
        episode = summary.session.episode
        assert episode is not None, "an attempt's turns are told apart by its key, all of them"
        turns[episode.attempt] += [turn for turn in rows.turns(summary.session.id) if turn.kind == "main"]
    assert all(len(each) >= 2 for each in turns.values()), "the call, and what was said of it"

    num_turns = sum(map(len, turns.values()))
    found = eventually(lambda: whole(server, num_turns), timeout_s=60.0)
    by_turn: dict[tuple[str, int], Sample] = {(one.session, one.index): one for one in found}
    mean = sum(rewards.values()) / GROUP
    for number, each in turns.items():
        for turn in each:
            sample = by_turn[turn.session, turn.index]
            assert sample.response_ids == turn.completion.token_ids
            assert {one > 0 for one in sample.advantages if one} == {rewards[number] > mean}


def whole(server: Server, num: int) -> list[Sample] | None:
    found = reader(server).waiting_samples("env:terminal", 100)
    return found if len(found) == num else None

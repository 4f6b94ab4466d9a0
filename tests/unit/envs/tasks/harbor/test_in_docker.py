"""A task of this machine's programs in boxes of Docker, by the program that stands in for it: done, then graded."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.sandbox.docker import DockerSandbox
from openclaw_rl.envs.tasks.harbor.images import Images
from openclaw_rl.errors import TaskError
from tests.fakes.engines import stand_in
from tests.unit.envs.tasks.harbor.conftest import Attempts


async def test_an_agents_work_is_graded_in_a_fresh_container(
    sandbox: BubblewrapSandbox, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sandbox`: the stand-in needs what it needs."""
    state = stand_in(tmp_path, monkeypatch)
    docker = DockerSandbox()
    async with AsyncExitStack() as stack:
        made = Attempts(sandbox=docker, images=Images(docker, cache), folder=tmp_path, stack=stack)
        attempt = await made.begin({})
        await attempt.box.run("mkdir -p /tests && echo mine >/tests/test.sh", timeout_s=30)
        assert (await attempt.verdict()).rewards["reward"] == 0.0
        solved = await made.begin({}, name="solved")
        await solved.solve()
        assert (await solved.verdict()).rewards["reward"] == 1.0
        with pytest.raises(TaskError, match="tasks with an image of their own need bubblewrap; remedy: apt-get"):
            await made.begin({"task.toml": "", "environment/Dockerfile": "FROM small:1\n"}, name="image")
    asked = [json.loads(line) for line in (state / "log").read_text().splitlines()]
    assert sum(line[0] == "run" for line in asked) == 4, "two attempts, and a grader's box for each"

"""The SWE track in real boxes, on the set that is shipped: what an agent finds, and what its work is worth."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.swe.environment import SweEnvironment
from openclaw_rl.envs.swe.room import SweRoom
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Grade, TaskRef, ToolCall
from tests.fakes.boxes import sandbox_or_skip

TASK = "pocket-dbb0c433"
"""`plural` says `if count != 1` where `==` is right."""
MEND = "sed -i 's/if count != 1:/if count == 1:/' pocket/words.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> SweEnvironment:
    sandbox = sandbox_or_skip(tmp_path_factory.mktemp("boxes"))
    return SweEnvironment(rollout=RolloutConfig(), sandbox=sandbox, cache=tmp_path_factory.mktemp("cache"))


@asynccontextmanager
async def attempt(environment: SweEnvironment, *commands: str) -> AsyncIterator[SweRoom]:
    """A room in which an agent has run these."""
    room = await environment.room(TaskRef(environment="swe", source="", name=TASK), gateway="", programs={})
    try:
        await room.open()
        for command in commands:
            ran = await room.run(f"cd /testbed && {command}", timeout_s=30.0, env={})
            assert ran.exit_code == 0, ran.output
        yield room
    finally:
        await room.close()


async def worth(environment: SweEnvironment, *commands: str) -> Grade:
    async with attempt(environment, *commands) as room:
        return await room.evaluate()


async def test_the_shipped_set_is_train_and_held_out(environment: SweEnvironment) -> None:
    tasks = await environment.tasks("")
    (source,) = environment.sources()
    assert (source.num_train, source.num_held_out) == (7, 3)
    assert sorted(task.split for task in tasks) == ["held_out"] * 3 + ["train"] * 7
    with pytest.raises(TaskError, match="there is no set of tasks 'nope'"):
        await environment.tasks("nope")


async def test_the_agent_finds_the_fault_and_neither_its_tests_nor_a_history(environment: SweEnvironment) -> None:
    async with attempt(environment) as room:
        arguments = json.dumps(
            {"command": "git log --oneline --all | wc -l; ls . tests; grep -c 'count != 1' pocket/words.py"}
        )
        seen = await room.step(ToolCall(id="c", name="shell", arguments=arguments))
    lines = seen.content.split()
    assert lines[0] == "1", "one commit, of the tree as it is"
    assert "pocket" in lines
    assert "test_figures.py" in lines, "what passes may be seen"
    assert "test_words.py" not in lines, "what fails is for the grader"
    assert lines[-1] == "1"


async def test_doing_nothing_is_worth_nothing_and_the_solution_all(environment: SweEnvironment) -> None:
    nothing = await worth(environment)
    assert (nothing.reward, nothing.share, nothing.failure) == (-1.0, 0.0, "")
    async with attempt(environment) as room:
        await room.solve()
        solved = await room.evaluate()
    assert (solved.reward, solved.share, solved.metrics["broken"]) == (1.0, 1.0, 0.0)


async def test_mending_it_by_hand_is_worth_as_much_also_beside_new_tests(environment: SweEnvironment) -> None:
    grade = await worth(environment, MEND, "mkdir -p tests", "echo 'def test_no(): assert 0' >tests/test_new.py")
    assert (grade.reward, grade.metrics["tampering"]) == (1.0, 0.0)
    assert "tests/test_new.py" in grade.report


@pytest.mark.parametrize(
    "cheat",
    [
        "echo 'import pytest' >tests/conftest.py",
        "echo 'x = 1' >>tests/test_figures.py",
        "printf '[pytest]\\naddopts = -k nothing\\n' >pytest.ini",
        "echo 'raise SystemExit(0)' >sitecustomize.py",
        "printf '\\n[tool.pytest.ini_options]\\naddopts = \"-k nothing\"\\n' >>pyproject.toml",
    ],
)
async def test_whoever_changes_what_decides_has_failed_even_with_the_fault_mended(
    environment: SweEnvironment, cheat: str
) -> None:
    grade = await worth(environment, MEND, cheat)
    assert (grade.reward, grade.share) == (-1.0, 0.0)
    assert grade.metrics["tampering"] == 1.0
    assert "changed what decides about it" in grade.report


async def test_breaking_what_passed_is_worth_nothing(environment: SweEnvironment) -> None:
    grade = await worth(environment, MEND, "echo 'raise ValueError' >>pocket/spans.py")
    assert (grade.reward, grade.share) == (-1.0, 0.0)
    assert grade.metrics["broken"] > 0


async def test_a_row_of_swe_bench_has_the_venv_of_its_version_or_else_of_its_repository(
    environment: SweEnvironment, tmp_path: Path
) -> None:
    row = {
        "instance_id": "own__pack-1",
        "repo": "own/pack",
        "base_commit": "ab12cd34",
        "problem_statement": "It is wrong.",
        "patch": "diff --git a/pack.py b/pack.py\n--- a/pack.py\n+++ b/pack.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n",
        "test_patch": "",
        "FAIL_TO_PASS": json.dumps(["test_pack.py::test_a"]),
        "PASS_TO_PASS": json.dumps([]),
        "version": "2.3",
        "environment_setup_commit": "cd34ef56",
    }
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row))
    both, its_own = tmp_path / "venvs" / "own__pack", tmp_path / "venvs" / "own__pack-2.3"

    ref = TaskRef(environment="swe", source=str(tmp_path), name="own__pack-1")

    async def refusal() -> str:
        room = await environment.room(ref, gateway="", programs={})
        with pytest.raises(TaskError) as refused:
            await room.open()
        return str(refused.value)

    told = await refusal()
    assert "made for packages of its own" in told
    assert told.endswith(f"what own/pack 2.3 needs, and put it, or a link to it, at {its_own} or {both}")
    both.mkdir(parents=True)
    assert (await refusal()).startswith(f"{both} is no venv")
    its_own.mkdir()
    assert (await refusal()).startswith(f"{its_own} is no venv")

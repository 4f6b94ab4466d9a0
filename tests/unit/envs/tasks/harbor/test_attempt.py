"""Attempts at tasks: the steps, the verifier in a fresh box, and what an agent's tricks are worth there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.attempt import AGENT_TIMEOUT_S, HarborAttempt, limits_of
from openclaw_rl.envs.tasks.harbor.rewards import REWARD
from openclaw_rl.errors import EnvError, TaskError
from tests.fakes.harbor_tasks import PLAIN
from tests.unit.envs.tasks.harbor.conftest import Attempts

ON_IMAGE = """
[environment]
docker_image = "small:1"
network_mode = "no-network"
memory_mb = 256
storage_mb = 32
"""
KINDS = pytest.mark.parametrize("toml", [PLAIN["task.toml"], ON_IMAGE], ids=["machine", "image"])


async def does(attempt: HarborAttempt, command: str) -> str:
    ran = await attempt.box.shell(command, timeout_s=30)
    assert ran.exit_code == 0, ran.output
    return ran.output


async def reward(attempt: HarborAttempt) -> float:
    return (await attempt.verdict()).rewards[REWARD]


@KINDS
async def test_nothing_done_earns_nothing_and_the_solution_all(attempts: Attempts, toml: str) -> None:
    attempt = await attempts.begin({"task.toml": toml})
    assert await reward(attempt) == 0.0
    for _ in range(2):
        await attempt.start(gateway="", programs={})
        await attempt.solve()
        assert await reward(attempt) == 1.0


@KINDS
async def test_an_agent_finds_neither_tests_nor_the_solution(attempts: Attempts, toml: str) -> None:
    attempt = await attempts.begin({"task.toml": toml})
    looked = await does(attempt, "ls -d /tests /solution /.context 2>&1; ls; ls -A /logs/verifier")
    assert looked.count("No such file") == 3
    assert looked.endswith("\nstate.txt\n")
    await attempt.verdict()
    await attempt.solve()
    assert (await does(attempt, "ls -d /tests /solution 2>&1; ls -A /logs/verifier || true")).count("No such") == 2


TRICKS = {
    "rewards": "cd /logs/verifier; echo 1 > reward.txt; echo 1 > reward.json",
    "tests": "mkdir -p /tests && echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; true",
    "a link for the rewards": "cd /logs; rm -rf verifier && ln -s agent verifier; echo 1 > agent/reward.txt; true",
    "a start file": "mkdir -p /root; echo 'echo 1 > /logs/verifier/reward.txt; exit' > /root/.bashrc; "
    "cp /root/.bashrc /root/.profile; true",
    "a process": "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.1; done) > /dev/null 2>&1 & true",
}


@KINDS
@pytest.mark.parametrize("trick", TRICKS)
async def test_tricks_earn_nothing(attempts: Attempts, toml: str, trick: str) -> None:
    silent = {"tests/test.sh": "#!/bin/bash\ntrue\n"}
    attempt = await attempts.begin({"task.toml": toml, **silent})
    await attempt.box.shell(TRICKS[trick], timeout_s=30)
    with pytest.raises(EnvError, match="neither reward.json nor reward.txt"):
        await attempt.verdict()


@pytest.mark.parametrize("delivered", ["/logs", "/logs/verifier"])
@KINDS
async def test_rewards_that_the_task_would_have_delivered_count_for_nothing(
    attempts: Attempts, toml: str, delivered: str
) -> None:
    for number, mode in enumerate(("shared", "separate")):
        text = f'artifacts = ["{delivered}"]\n{toml}\n[verifier]\nenvironment_mode = "{mode}"\n'
        attempt = await attempts.begin({"task.toml": text, "tests/test.sh": "#!/bin/bash\ntrue\n"}, name=f"t{number}")
        await does(attempt, "echo 1 > /logs/verifier/reward.txt")
        with pytest.raises(EnvError, match="neither reward.json nor reward.txt"):
            await attempt.verdict()


async def test_programs_of_the_agents_do_not_pass_for_the_systems(attempts: Attempts) -> None:
    attempt = await attempts.begin({"task.toml": ON_IMAGE})
    fake = "#!/bin/sh\necho done\n"
    await attempt.box.write("/bin/cat", fake.encode(), mode=0o755)
    assert await does(attempt, "cat state.txt") == "done\n"
    verdict = await attempt.verdict()
    assert verdict.rewards[REWARD] == 0.0
    assert "changed among the system's files: /bin/cat;" in verdict.output


async def test_what_a_task_names_is_carried_wherever_it_lies(attempts: Attempts) -> None:
    test = "#!/bin/bash\n[ -e /etc/new ] && [ ! -e /etc/other ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    attempt = await attempts.begin({"task.toml": f'artifacts = ["/etc/new"]\n{ON_IMAGE}', "tests/test.sh": test})
    await does(attempt, "touch /etc/new /etc/other")
    assert await reward(attempt) == 1.0


async def test_a_missing_reward_is_a_failure_and_tells_what_the_verifier_said(attempts: Attempts) -> None:
    attempt = await attempts.begin({"tests/test.sh": "#!/bin/bash\necho 'pytest: not found' >&2\nexit 127\n"})
    with pytest.raises(EnvError, match=r"left no reward.*\(exit code 127\); the last it said: pytest: not found"):
        await attempt.verdict()


async def test_a_verifier_has_a_time_limit(attempts: Attempts) -> None:
    toml = f"{PLAIN['task.toml']}\n[verifier]\ntimeout_sec = 0.5\n"
    attempt = await attempts.begin({"task.toml": toml, "tests/test.sh": "#!/bin/bash\necho slow\nsleep 60\n"})
    with pytest.raises(EnvError, match=r"did not end within 0\.5 s; the last it said: slow"):
        await attempt.verdict()


async def test_a_verifier_that_cannot_be_read_as_a_program_is_a_failure(attempts: Attempts) -> None:
    attempt = await attempts.begin({"tests/test.sh": "#!/no/such/shell\n"})
    with pytest.raises(EnvError, match="left no reward"):
        await attempt.verdict()


async def test_a_solution_that_fails_is_told_beside_the_reward(attempts: Attempts) -> None:
    attempt = await attempts.begin({"solution/solve.sh": "#!/bin/bash\necho no jq here\nexit 4\n"})
    await attempt.solve()
    verdict = await attempt.verdict()
    assert verdict.rewards[REWARD] == 0.0
    assert verdict.output.endswith("[the solution ended with code 4: no jq here]")


async def test_a_task_without_a_solution_cannot_be_solved_by_its_author(attempts: Attempts) -> None:
    attempt = await attempts.begin({"solution/solve.sh": None})
    with pytest.raises(TaskError, match="has no solution/solve.sh"):
        await attempt.solve()


async def test_a_task_has_its_limits_and_variables(attempts: Attempts) -> None:
    toml = f"""
    {PLAIN["task.toml"]}
    env = {{ GREETING = "${{NONE_SUCH:-hi}}" }}
    [verifier]
    env = {{ POINTS = "0.25" }}
    [solution]
    env = {{ ANSWER = "done" }}
    """
    attempt = await attempts.begin(
        {
            "task.toml": toml,
            "solution/solve.sh": "#!/bin/sh\necho $ANSWER $GREETING > state.txt\n",
            "tests/test.sh": '#!/bin/sh\ngrep -qx "done hi" state.txt && echo $POINTS > /logs/verifier/reward.txt\n',
        }
    )
    limits = limits_of(attempt._task.plan)
    assert (limits.memory_mb, limits.disk_mb) == (256, 32)
    assert await does(attempt, "echo $GREETING$POINTS$ANSWER") == "hi\n"
    await attempt.solve()
    assert await reward(attempt) == 0.25


async def test_a_collector_prepares_what_is_graded(attempts: Attempts) -> None:
    hook = '[[verifier.collect]]\ncommand = "{}"\n'
    toml = PLAIN["task.toml"] + hook
    attempt = await attempts.begin({"task.toml": toml.format("echo done > state.txt")})
    assert await reward(attempt) == 1.0
    failing = await attempts.begin({"task.toml": toml.format("echo gone; exit 1")}, name="failing")
    with pytest.raises(EnvError, match="what collects the agent's work failed .*gone"):
        await failing.verdict()


SEPARATE = f"""
artifacts = ["/work/out", {{ source = "/work/kept", exclude = ["*.log", "cache/"] }}]
{ON_IMAGE}
[verifier]
environment_mode = "separate"
"""
LISTS = "#!/bin/bash\nls -R out kept; ls -A /logs/artifacts; cat state.txt; echo 1 > /logs/verifier/reward.txt\n"


async def test_a_verifier_with_a_box_of_its_own_sees_what_is_delivered_alone(attempts: Attempts) -> None:
    attempt = await attempts.begin(
        {"task.toml": SEPARATE, "tests/test.sh": LISTS, "environment/out/old": "", "environment/kept/old": ""}
    )
    await does(
        attempt,
        "echo done > state.txt; rm out/old; touch out/new; mkdir kept/cache; touch kept/cache/x kept/y.log kept/z; "
        "echo x > /logs/artifacts/note",
    )
    output = (await attempt.verdict()).output
    assert output == "kept:\nold\nz\n\nout:\nnew\nnote\ntodo"


async def test_a_delivered_folder_takes_the_place_of_the_images_own_on_any_machine(attempts: Attempts) -> None:
    toml = f'artifacts = ["out", "/app/one.txt"]\n{PLAIN["task.toml"]}\n[verifier]\nenvironment_mode = "separate"\n'
    test = "#!/bin/bash\nls out; cat state.txt one.txt; echo 1 > /logs/verifier/reward.txt\n"
    attempt = await attempts.begin(
        {"task.toml": toml, "tests/test.sh": test, "environment/out/old": "", "environment/one.txt": "one\n"}
    )
    await does(attempt, "rm out/old; touch out/new; echo done > state.txt; echo two > one.txt")
    assert (await attempt.verdict()).output == "new\ntodo\ntwo"


STEPS = f"""
{PLAIN["task.toml"]}
[[steps]]
name = "one"
min_reward = 0.5
[steps.agent]
timeout_sec = 30
[[steps]]
name = "two"
"""


def steps(**files: str | None) -> dict[str, str | None]:
    test = "#!/bin/bash\ncat {0}.txt > /logs/verifier/reward.txt\nls > /dev/stderr\n"
    return {
        "task.toml": STEPS,
        "instruction.md": None,
        "tests/test.sh": None,
        "solution/solve.sh": None,
        "steps/one/instruction.md": "First.",
        "steps/one/tests/test.sh": test.format("one"),
        "steps/one/solution/solve.sh": "#!/bin/sh\necho 1 > one.txt\n",
        "steps/two/instruction.md": "Second.",
        "steps/two/workdir/deep/given.txt": "given\n",
        "steps/two/workdir/setup.sh": "cp deep/given.txt made.txt\n",
        "steps/two/tests/test.sh": test.format("two"),
        "steps/two/solution/solve.sh": "#!/bin/sh\n[ -e made.txt ] && echo 0.5 > two.txt\n",
        **files,
    }


async def test_steps_follow_each_other_in_one_box(attempts: Attempts) -> None:
    attempt = await attempts.begin(steps())
    assert attempt.timeout_s == 30 + AGENT_TIMEOUT_S
    assert (attempt.step.instruction, attempt.is_at_last) == ("First.", False)
    await does(attempt, "echo 0.75 > one.txt; ls")
    assert await attempt.advance()
    assert (attempt.step.instruction, attempt.is_at_last) == ("Second.", True)
    assert await does(attempt, "cat made.txt; ls deep") == "given\ngiven.txt\n"
    await does(attempt, "echo 0.25 > two.txt")
    assert await reward(attempt) == 0.5


async def test_steps_are_solved_in_their_turn(attempts: Attempts) -> None:
    attempt = await attempts.begin(steps())
    await attempt.solve()
    assert await reward(attempt) == 0.75


async def test_a_step_that_is_not_done_well_enough_is_the_last(attempts: Attempts) -> None:
    attempt = await attempts.begin(steps())
    await does(attempt, "echo 0.4 > one.txt; echo 1 > two.txt")
    assert not await attempt.advance()
    assert await reward(attempt) == 0.4


async def test_steps_that_an_agent_does_not_come_to_are_graded(attempts: Attempts) -> None:
    attempt = await attempts.begin(steps())
    await does(attempt, "echo 1 > one.txt; echo 0 > two.txt")
    assert await reward(attempt) == 0.5


async def test_the_final_step_may_be_all_that_counts(attempts: Attempts) -> None:
    attempt = await attempts.begin(steps(**{"task.toml": f'multi_step_reward_strategy = "final"\n{STEPS}'}))
    await does(attempt, "echo 1 > one.txt; echo 0.25 > two.txt")
    assert await reward(attempt) == 0.25


async def test_a_step_that_cannot_be_prepared_is_a_failure(attempts: Attempts) -> None:
    attempt = await attempts.begin(steps(**{"steps/two/workdir/setup.sh": "echo broken; exit 1\n"}))
    await does(attempt, "echo 1 > one.txt")
    with pytest.raises(EnvError, match=r"setup.sh of step two failed .*broken"):
        await attempt.verdict()


async def test_nothing_of_an_attempt_is_left(attempts: Attempts, tmp_path: Path) -> None:
    attempt = await attempts.begin({})
    assert len(os.listdir(tmp_path / "attempts")) == 1
    await attempt.start(gateway="", programs={})
    assert len(os.listdir(tmp_path / "attempts")) == 1
    await attempt.verdict()
    await attempt.close()
    await attempt.close()
    assert os.listdir(tmp_path / "attempts") == []
    with pytest.raises(EnvError, match="has not begun, or has ended"):
        _ = attempt.box


async def test_a_task_that_cannot_be_attempted_gets_no_box(attempts: Attempts) -> None:
    with pytest.raises(TaskError, match="a GPU or TPU"):
        await attempts.begin({"task.toml": "[environment]\ngpus = 1"})

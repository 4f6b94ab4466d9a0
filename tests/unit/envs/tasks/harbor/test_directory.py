"""A task directory as it is read: what is asked, how it is graded, and what is broken about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.directory import HarborTask, hashed_split, read_task, split_of
from openclaw_rl.errors import TaskError
from tests.fakes.harbor_tasks import write_task

TWO_STEPS = """
artifacts = ["/app/all"]
[agent]
timeout_sec = 100
[verifier]
env = { A = "task", B = "task" }
network_mode = "no-network"
[[steps]]
name = "one"
min_reward = 0.5
artifacts = ["one.txt"]
[steps.verifier]
timeout_sec = 7
env = { B = "step" }
[[steps]]
name = "two"
min_reward = { style = 1 }
[steps.agent]
timeout_sec = 5
network_mode = "no-network"
"""


def two_steps(folder: Path) -> Path:
    return write_task(
        folder,
        {
            "task.toml": TWO_STEPS,
            "instruction.md": None,
            "steps/one/instruction.md": "First.\n",
            "steps/one/workdir/setup.sh": "true\n",
            "steps/two/instruction.md": "Second.\n",
            "steps/two/tests/test.sh": "#!/bin/sh\n",
            "steps/two/solution/solve.sh": "#!/bin/sh\n",
        },
    )


def test_a_task_without_steps_has_one(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path / "count", {}))
    (step,) = task.steps
    assert (task.name, task.strategy, step.name) == ("count", "mean", "")
    assert step.instruction == "Write done into state.txt.\n"
    assert step.tests == (tmp_path / "count" / "tests",)
    assert step.solution == tmp_path / "count" / "solution"
    assert (step.files, step.grader, step.min_reward, step.artifacts) == (None, None, {}, ())
    assert task.plan.folder == tmp_path / "count" / "environment"


def test_a_step_has_its_own_values_over_those_of_the_task(tmp_path: Path) -> None:
    folder = two_steps(tmp_path / "two")
    one, two = read_task(folder).steps
    assert (one.instruction, two.instruction) == ("First.\n", "Second.\n")
    assert (one.agent.timeout_sec, two.agent.timeout_sec) == (100.0, 5.0)
    assert (one.agent.network_mode, two.agent.network_mode) == (None, "no-network")
    assert (one.verifier.timeout_sec, two.verifier.timeout_sec) == (7.0, 600.0)
    assert one.verifier.env == {"A": "task", "B": "step"}
    assert two.verifier.network_mode == "no-network"
    assert (one.min_reward, two.min_reward) == ({"reward": 0.5}, {"style": 1.0})
    assert [one.source for one in one.artifacts] == ["/app/all", "one.txt"]
    assert (one.files, two.files) == (folder / "steps/one/workdir", None)
    assert one.tests == (folder / "tests",)
    assert two.tests == (folder / "tests", folder / "steps/two/tests")
    assert (one.solution, two.solution) == (folder / "solution", folder / "steps/two/solution")


def test_a_canary_is_not_told(tmp_path: Path) -> None:
    text = "<!-- canary 123 -->\n# a Canary too\n\n\nDo it.\n<!-- canary below stays -->\n"
    task = read_task(write_task(tmp_path / "a", {"instruction.md": text}))
    assert task.steps[0].instruction == "Do it.\n<!-- canary below stays -->\n"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"task.toml": None}, "a/task.toml cannot be read: No such file"),
        ({"task.toml": "x"}, "a/task.toml is not TOML"),
        ({"instruction.md": None}, "a/instruction.md cannot be read: No such file"),
        ({"instruction.md": " \n\n"}, "instruction.md is empty"),
        ({"instruction.md": "# canary\n"}, "instruction.md is empty"),
        ({"instruction.md": "x" * 300_000}, "a/instruction.md is larger than 262144 bytes"),
        ({"environment/state.txt": None}, "a has no folder environment/"),
        ({"tests/test.sh": None, "tests/other.sh": ""}, "a has no tests/test.sh"),
        ({"tests/test.sh": None}, "a has no tests/test.sh"),
        ({"task.toml": '[[steps]]\nname = "one"'}, "one/instruction.md cannot be read"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, files: dict[str, str | None], why: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with pytest.raises(TaskError, match=why):
        read_task(write_task(folder, files))


def test_an_instruction_is_text(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "a", {})
    (folder / "instruction.md").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match=r"a/instruction\.md is not text in UTF-8"):
        read_task(folder)


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda a: os.symlink("/etc", a / "tests/etc"), "a/tests/etc is a link that leads out"),
        (lambda a: os.symlink("../../b", a / "solution/b"), "a/solution/b is a link that leads out"),
        (lambda a: os.symlink("round", a / "tests/round"), "a/tests/round is a link that leads in a circle"),
        (lambda a: os.symlink("..", a / "tests/up"), "a/tests/up is a link that leads in a circle"),
        (lambda a: os.mkfifo(a / "environment/pipe"), "a/environment/pipe is no file, folder or link"),
        (
            lambda a: os.truncate(a / "environment/state.txt", 20 << 30),
            "a holds 20 GiB of files; a task has at most 16",
        ),
    ],
)
def test_trees_that_mean_harm_are_refused(tmp_path: Path, break_it: Callable[[Path], None], why: str) -> None:
    folder = write_task(tmp_path / "a", {})
    break_it(folder)
    with pytest.raises(TaskError, match=why):
        read_task(folder)


def test_links_within_a_task_are_no_harm(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "a", {})
    (folder / "tests" / "again.sh").symlink_to("test.sh")
    (folder / "environment" / "os").symlink_to("/etc/os-release")  # a place in the box
    read_task(folder)


def graded(tmp_path: Path, toml: str, files: dict[str, str | None]) -> HarborTask:
    return read_task(write_task(tmp_path / "a", {"task.toml": toml, **files}))


def test_a_verifier_sees_all_unless_it_has_a_box_of_its_own(tmp_path: Path) -> None:
    assert graded(tmp_path, "", {"tests/Dockerfile": "FROM a"}).steps[0].grader is None


def test_a_box_of_its_own_is_the_agents_made_anew(tmp_path: Path) -> None:
    toml = '[environment]\ndocker_image = "a"\nmemory_mb = 5\n[verifier]\nenvironment_mode = "separate"'
    grader = graded(tmp_path, toml, {}).steps[0].grader
    assert grader is not None
    assert (grader.table.docker_image, grader.table.memory_mb, grader.has_tests) == ("a", 5, False)
    assert grader.folder == tmp_path / "a" / "environment"


def test_a_box_of_its_own_has_its_own_values_on_the_agents_image(tmp_path: Path) -> None:
    toml = '[environment]\ndocker_image = "a"\n[verifier.environment]\nmemory_mb = 7'
    task = graded(tmp_path, toml, {})
    grader = task.steps[0].grader
    assert grader is not None
    assert (grader.table.docker_image, grader.table.memory_mb, grader.has_tests) == ("a", 7, False)
    assert task.steps[0].tests


@pytest.mark.parametrize(
    ("toml", "files", "image"),
    [
        ('[verifier.environment]\ndocker_image = "b"', {"tests/test.sh": None}, "b"),
        ('[verifier]\nenvironment_mode = "separate"', {"tests/Dockerfile": "FROM c"}, None),
    ],
)
def test_a_verifiers_own_image_brings_its_tests(
    tmp_path: Path, toml: str, files: dict[str, str | None], image: str | None
) -> None:
    step = graded(tmp_path, toml, files).steps[0]
    assert step.grader is not None
    assert (step.grader.has_tests, step.grader.table.docker_image, step.tests) == (True, image, ())
    assert step.grader.folder == tmp_path / "a" / "tests"


def test_a_step_may_share_its_box_where_the_task_does_not(tmp_path: Path) -> None:
    toml = """
    [verifier]
    environment_mode = "separate"
    [[steps]]
    name = "one"
    [steps.verifier]
    environment_mode = "shared"
    [[steps]]
    name = "two"
    """
    one, two = graded(
        tmp_path, toml, {"steps/one/instruction.md": "1", "steps/two/instruction.md": "2", "tests/Dockerfile": "FROM a"}
    ).steps
    assert one.grader is None
    assert two.grader is not None
    assert two.grader.folder == tmp_path / "a" / "tests"


def test_kinds_and_splits_come_from_the_metadata(tmp_path: Path) -> None:
    toml = '[metadata]\ncategory = "files"\ntags = ["a", 5]\nsplit = "{}"'
    task = graded(tmp_path, toml.format("train"), {})
    assert task.kinds == {"files", "a"}
    assert split_of(task) == "train"
    assert split_of(graded(tmp_path, toml.format("test"), {})) == "held_out"
    assert split_of(graded(tmp_path, "", {})) == hashed_split("a")
    assert [hashed_split(f"task-{number}") for number in range(1000)].count("held_out") == pytest.approx(200, abs=40)

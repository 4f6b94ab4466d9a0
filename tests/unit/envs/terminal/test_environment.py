"""Where terminal tasks come from, which of them are meant, and that those we ship are fit to train on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.checking import check_task
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.tasks.harbor.directory import read_task
from openclaw_rl.envs.terminal.environment import TerminalEnvironment
from openclaw_rl.envs.terminal.shipped.draft import FOLDER, Draft
from openclaw_rl.envs.terminal.shipped.draft import write_task as write_draft
from openclaw_rl.envs.terminal.shipped.sets import SETS, drafts, written
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Task, TaskRef
from tests.fakes.harbor_tasks import PLAIN, write_task


def of_kind(kind: str | None, cache: Path) -> TerminalEnvironment:
    """One that makes no box."""
    return TerminalEnvironment(rollout=RolloutConfig(task_type=kind), sandbox=BubblewrapSandbox(cache), cache=cache)


@pytest.mark.parametrize("name", SETS)
async def test_a_set_has_the_tasks_that_it_says(name: str, cache: Path) -> None:
    environment = of_kind(None, cache)
    tasks = await environment.tasks(name)
    (source,) = [one for one in environment.sources() if one.name == name]
    assert Counter(task.split for task in tasks) == {"train": source.num_train, "held_out": source.num_held_out}


def test_no_held_out_task_is_one_of_those_to_train_on() -> None:
    for name in SETS:
        made = list(drafts(name))
        trained = {repr(draft) for _, split, draft in made if split == "train"}
        assert trained.isdisjoint(repr(draft) for _, split, draft in made if split == "held_out")


async def test_the_first_set_is_meant_where_none_is_named(cache: Path) -> None:
    environment = of_kind(None, cache)
    assert [task.ref.name for task in await environment.tasks("")] == [
        task.ref.name for task in await environment.tasks("commands")
    ]


def test_a_set_is_the_same_everywhere_and_written_once(tmp_path: Path) -> None:
    assert list(drafts("files")) == list(drafts("files"))
    folder = written("files", tmp_path)
    (folder / "mark").touch()
    assert written("files", tmp_path) == folder
    assert (folder / "mark").exists()
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


async def test_only_tasks_of_a_kind_are_meant(cache: Path) -> None:
    found = await of_kind("mkdir", cache).tasks("commands")
    assert {task.ref.name.rpartition("-")[0] for task in found} == {"mkdir"}
    assert len(await of_kind("bash_commands", cache).tasks("commands")) == len(await of_kind(None, cache).tasks(""))
    with pytest.raises(TaskError, match="no task is of the kind 'painting'"):
        await of_kind("painting", cache).tasks("commands")


async def test_a_broken_task_is_listed_with_its_reason(tmp_path: Path, cache: Path) -> None:
    write_task(tmp_path / "good", {"task.toml": f'{PLAIN["task.toml"]}\n[metadata]\nsplit = "train"'})
    write_task(tmp_path / "bad", {"instruction.md": None})
    bad, good = await of_kind(None, cache).tasks(str(tmp_path))
    assert "(broken: bad/instruction.md cannot be read" in bad.instruction
    assert good == Task(
        ref=TaskRef(environment="terminal", source=str(tmp_path), name="good"),
        split="train",
        instruction="Write done into state.txt.\n",
    )


async def test_a_source_that_is_none_is_told_what_there_is(cache: Path) -> None:
    with pytest.raises(TaskError, match=r"no folder filez, nor a set of that name; the sets are commands, files"):
        await of_kind(None, cache).tasks("filez")


def one_of_each_family() -> list[tuple[str, str]]:
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for name in SETS:
        for task, _, draft in drafts(name):
            found.setdefault((name, draft.kind), (name, task))
    return list(found.values())


@pytest.mark.parametrize(("source", "name"), one_of_each_family())
async def test_shipped_tasks_are_fit_to_train_on(environment: TerminalEnvironment, source: str, name: str) -> None:
    checked = await check_task(environment, TaskRef(environment="terminal", source=source, name=name))
    assert checked.problem == "", checked.report


@pytest.mark.parametrize(
    ("command", "reward"),
    [
        ("mkdir poems", 1.0),
        ("mkdir poems && touch poems/more", -1.0),
        ("mkdir poems && touch more", -1.0),
        ("touch poems", -1.0),
    ],
)
async def test_a_shipped_task_wants_what_it_asks_and_nothing_else(
    environment: TerminalEnvironment, tmp_path: Path, command: str, reward: float
) -> None:
    asked = Draft(kind="x", instruction="Make poems.", before={"a": ""}, after={"poems": FOLDER}, command=command)
    write_draft(asked, tmp_path / "tasks" / "one", split="train", opening="shell", agent_s=60)
    ref = TaskRef(environment="terminal", source=str(tmp_path / "tasks"), name="one")
    room = await environment.room(ref, gateway="", programs={})
    try:
        await room.open()
        await room.solve()
        assert (await room.evaluate()).reward == reward
    finally:
        await room.close()


def test_shipped_tasks_reveal_nothing_of_their_answers(cache: Path) -> None:
    for folder in written("files", cache).iterdir():
        task = read_task(folder)
        assert task.steps[0].tests == (folder / "tests",)
        assert not {path.name for path in (folder / "environment").iterdir()} & {"tests", "solution", "expected"}

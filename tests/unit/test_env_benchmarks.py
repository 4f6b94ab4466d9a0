"""The pure parts of benchmarks/envs.py and env_learning.py: what is left behind, what counts, and what is a rise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from benchmarks.env_learning import (
    ARMS,
    FAMILIES,
    Result,
    Trained,
    kinds_of,
    mixed_share,
    report,
    rise_of,
    solved_shares,
)
from benchmarks.envs import FIGURES, PARALLEL, Left, Scripted, left_of, opponents_tasks, scripted_tasks
from benchmarks.load import LoadError
from openclaw_rl.config import load_config
from openclaw_rl.envs.orders import Attempted
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.types import Grade


def attempted(task: str, share: float | None, *, group: str = "g", attempt: int = 0) -> Attempted:
    grade = Grade(failure="no box") if share is None else Grade(reward=2 * share - 1, share=share)
    return Attempted(
        task=task, group=group, attempt=attempt, version="v1", grade=grade, ended="finished", num_steps=1, seconds=1.0
    )


def test_a_task_counts_once_however_often_it_is_attempted() -> None:
    before = solved_shares([attempted("a-1", 0.0), attempted("a-1", 0.5), attempted("b-1", 1.0), attempted("a-2", 0.0)])
    after = solved_shares([attempted("a-1", 1.0), attempted("a-1", 0.0), attempted("b-1", 1.0), attempted("a-2", 1.0)])
    assert before == {"a-1": 0.0, "b-1": 1.0, "a-2": 0.0}, "half of a task is no task solved"
    assert after == {"a-1": 0.5, "b-1": 1.0, "a-2": 1.0}
    assert rise_of(before, after).value == pytest.approx(0.5)
    assert kinds_of(after) == {"a": 0.75, "b": 1.0}
    with pytest.raises(LoadError, match="same tasks"):
        rise_of(before, {"a-1": 1.0})


def test_a_rise_of_every_task_is_beyond_chance_and_one_of_some_is_not() -> None:
    tasks = [f"t-{number}" for number in range(40)]
    none = dict.fromkeys(tasks, 0.0)
    assert rise_of(none, dict.fromkeys(tasks, 0.5)).low == 0.5
    mixed = {task: float(at % 2) for at, task in enumerate(tasks)}
    other = {task: 1.0 - share for task, share in mixed.items()}
    assert 0.0 in rise_of(mixed, other)


def test_groups_that_ended_alike_are_not_mixed_and_failures_are_no_outcome() -> None:
    made = [
        *(attempted("a", share, group="mixed") for share in (0.0, 1.0, None)),
        *(attempted("b", share, group="alike") for share in (1.0, 1.0, None)),
        attempted("c", None, group="failed"),
    ]
    assert mixed_share(made) == 0.5
    assert mixed_share(made[-1:]) == 0.0


def test_figures_name_their_family_and_the_arm_that_is_no_default() -> None:
    trained = Trained(attempts=8, first=0.1, last=0.5, mixed=1.0, steps=2, versions={"live": 1}, objections=["v1: kl"])
    results = [
        Result(
            family="calls",
            arm=arm,
            before=0.2,
            after=0.5,
            rise=Interval(value=0.3, low=low, high=0.5),
            trained=trained,
            seconds=60.0,
        )
        for arm, low in (("outcome", 0.1), ("process", -0.1))
    ]
    assert [one.is_beyond_chance for one in results] == [True, False]
    assert results[0].figures["calls_rise_low"] == 0.1
    assert results[1].figures["calls_process_rise_low"] == -0.1
    outcome, process = report(results).splitlines()[1:]
    assert "chance" not in outcome
    assert "not beyond chance" in process
    assert "rejected: v1: kl" in str(trained)


def test_families_are_sources_of_ours_and_arms_are_settings() -> None:
    assert {(one.tried.environment, one.line) for one in FAMILIES.values()} == {
        ("toolcall", "env:toolcall"),
        ("terminal", "env:terminal"),
    }
    for settings in ARMS.values():
        load_config(overrides=list(settings))


def test_what_was_there_before_is_not_left_behind() -> None:
    before = Left(processes=frozenset({"1"}), mounts=frozenset({"/a"}), folders=frozenset({"x"}))
    after = Left(processes=frozenset({"2"}), mounts=frozenset({"/a", "/b"}), groups=frozenset({"g"}))
    assert after.beyond(before) == ["processes 2", "mounts /b", "groups g"]
    assert after.beyond(after) == []


async def test_processes_and_folders_are_seen_while_they_are_there(tmp_path: Path) -> None:
    for name in ("boxes/base-1", "terminal/attempts/one", "terminal/files-abc"):
        (tmp_path / name).mkdir(parents=True)
    child = await asyncio.create_subprocess_exec("sleep", "60")
    known = [psutil.Process(child.pid)]
    there = left_of(known, tmp_path)
    assert there.processes == {str(child.pid)}
    assert there.folders == {str(tmp_path / name) for name in ("boxes/base-1", "terminal/attempts/one")}
    child.kill()
    await child.wait()
    assert not left_of(known, tmp_path).processes


def test_the_opponent_gets_the_tasks_that_the_scripted_agent_gets(tmp_path: Path) -> None:
    ours, theirs = scripted_tasks(), opponents_tasks(tmp_path)
    assert [one.commands for one in ours] == [tuple(one["commands"]) for one in theirs]
    assert all(Path(one["files"]).is_dir() and Path(one["expected"]).is_dir() for one in theirs)
    assert ours[0] == Scripted(name=ours[0].name, commands=ours[0].commands)
    assert ours[0].ref.environment == "terminal"


def test_every_figure_has_its_opponents_beside_it() -> None:
    wanted = {"start_p50_ms", "leftovers", *(f"episodes_per_min_{number}" for number in PARALLEL)}
    assert wanted <= FIGURES.keys()
    assert {f"swe_rex_{name}" for name in wanted - {"leftovers"}} <= FIGURES.keys()

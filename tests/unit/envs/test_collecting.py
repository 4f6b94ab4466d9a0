"""Groups of attempts over real leases: what is made at once, what a failure leaves, what a second call goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.envs.attempting import STOPPED, Attempter
from openclaw_rl.envs.collecting import HOPELESS_GROUPS, TaskCollector, _spread
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.envs.orders import Attempted, CollectOrder, ExamOrder, Tried
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.protocols import Room
from openclaw_rl.types import Door, EndOfAttempt, Episode, Json, Opening, Outcome, Task, TaskRef, ToolCall, Turn
from tests.factories.turns import make_turn
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment, call_of


@dataclass
class FakeDesk:
    """Keeps what began and how it ended."""

    begun: dict[str, tuple[Episode, bool, str]] = field(default_factory=dict)
    ended: dict[str, tuple[Outcome, str]] = field(default_factory=dict)
    heard: dict[int, Callable[[Turn], None]] = field(default_factory=dict)

    async def begin(
        self, episode: Episode, *, learn: bool, version: str = "", heard: Callable[[Turn], None] | None = None
    ) -> Door:
        if heard is not None:
            self.heard[episode.attempt] = heard
        self.begun[episode.id] = (episode, learn, version)
        return Door(url="http://gateway", key=f"key-{episode.id}", model=f"m@{version}" if version else "m")

    async def end(self, outcome: Outcome, *, report: str = "") -> None:
        assert outcome.episode not in self.ended, "an attempt ends once"
        self.ended[outcome.episode] = (outcome, report)

    async def stored(self, group: str) -> Sequence[tuple[Episode, Outcome | None, Sequence[str]]]:
        return [(one, None, ()) for one, _, _ in self.begun.values() if one.group == group]

    def groups(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for one, _, _ in self.begun.values():
            found.setdefault(one.group, []).append(one.attempt)
        return {name: sorted(numbers) for name, numbers in found.items()}


class Actor:
    """Says one command in every room; those of `solves` solve their task."""

    name = "actor"

    def __init__(self, script: str = "look", solves: Sequence[str] = ()) -> None:
        self.script = script
        self.solves = solves

    def programs(self) -> Mapping[str, Path]:
        return NO_PROGRAMS

    async def attempt(self, room: Room, opening: Opening, door: Door) -> EndOfAttempt:
        await room.step(call_of(self.script))
        if door.model in self.solves:
            await room.solve()
        return "finished"


@dataclass
class Bench:
    """A collector, with all that it stands on."""

    environment: CountingEnvironment
    server: LocalEnvServer
    desk: FakeDesk
    told: list[Mapping[str, Json]] = field(default_factory=list)

    def collector(self, actor: Actor) -> TaskCollector:
        return TaskCollector(
            self.server, Attempter(server=self.server, desk=self.desk), lambda _: actor, self.desk.stored
        )

    async def collect(self, actor: Actor | None = None, **order: Any) -> Mapping[str, Json]:
        names = order.pop("names", ())
        asked = CollectOrder(
            tried=Tried(environment="counting", harness="actor", names=names),
            **{"run": "r", "num_episodes": 4, "group_size": 2, "parallel": 8, "workers": 2, **order},
        )
        return await self.collector(actor or Actor()).collect(asked, self.told.append)

    def attempts(self) -> list[Attempted]:
        return [Attempted.from_json(line["attempt"]) for line in self.told if "attempt" in line]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    environment = CountingEnvironment()
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=8)
    yield Bench(environment=environment, server=server, desk=FakeDesk())
    await server.aclose()
    assert not environment.open_rooms


async def test_each_task_gets_a_group_of_attempts_that_learn_and_are_graded(bench: Bench) -> None:
    counts = await bench.collect()
    assert bench.desk.groups() == {"r/count/0": [0, 1], "r/sort/0": [0, 1]}, "the task that is held out is not trained"
    assert all((learn, version) == (True, "") for _, learn, version in bench.desk.begun.values())
    assert {outcome.reward for outcome, _ in bench.desk.ended.values()} == {-1.0}
    assert counts == {"groups": 2, "attempts": 4, "failed": 0, "solved": 0, "same_outcome": 2, "groups_before": 0}
    assert sorted((one.task, one.attempt, one.num_steps) for one in bench.attempts()) == [
        ("count", 0, 1),
        ("count", 1, 1),
        ("sort", 0, 1),
        ("sort", 1, 1),
    ]


async def test_tasks_come_round_again_and_the_seed_decides_who_is_first(bench: Bench) -> None:
    await bench.collect(num_episodes=6, seed=1)
    assert sorted(bench.desk.groups()) in (
        ["r/count/0", "r/count/1", "r/sort/0"],
        ["r/count/0", "r/sort/0", "r/sort/1"],
    )


async def test_no_more_attempts_are_made_at_once_than_were_asked_for(bench: Bench) -> None:
    collecting = asyncio.create_task(bench.collect(Actor("wait here"), num_episodes=8, group_size=4, parallel=3))
    await bench.environment.until(lambda: bench.environment.ran["wait here"] == 3)
    bench.environment.gate.set()
    await collecting
    assert bench.environment.most_open == 3


async def test_a_failed_environment_is_an_outcome_without_a_reward(bench: Bench) -> None:
    counts = await bench.collect(Actor("fail the box died"), names=("count",), num_episodes=2)
    assert counts["failed"] == 2
    outcome, _ = next(iter(bench.desk.ended.values()))
    assert (outcome.reward, outcome.failure) == (None, "the box died")
    assert not bench.environment.open_rooms


async def test_a_collection_that_only_fails_ends_with_the_reason(bench: Bench) -> None:
    with pytest.raises(EnvError, match=f"{HOPELESS_GROUPS} groups in a row .*: the box died"):
        await bench.collect(Actor("fail the box died"), num_episodes=80, workers=1)
    assert len(bench.desk.groups()) == HOPELESS_GROUPS
    assert len(bench.desk.ended) == len(bench.desk.begun)


async def test_stopped_in_the_middle_it_leaves_nothing_open_and_goes_on_later(bench: Bench) -> None:
    collecting = asyncio.create_task(bench.collect(Actor("wait here"), num_episodes=4, parallel=2, workers=1))
    await bench.environment.until(lambda: bench.environment.ran["wait here"] == 2)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert not bench.environment.open_rooms
    assert {outcome.failure for outcome, _ in bench.desk.ended.values()} == {STOPPED}
    before = set(bench.desk.groups())
    counts = await bench.collect()
    assert counts["groups_before"] == 1
    assert set(bench.desk.groups()) > before
    assert all(numbers == [0, 1] for numbers in bench.desk.groups().values()), "no attempt is made twice"


async def test_whoever_wants_to_see_steps_is_told_of_each(bench: Bench) -> None:
    await bench.collect(names=("count",), num_episodes=2, tell_steps=True)
    steps = [line["step"] for line in bench.told if "step" in line]
    assert {next(key for key in step if key not in ("task", "attempt")) for step in steps} == {"begins", "call", "seen"}


async def test_the_turns_of_a_program_are_told_by_its_desk(bench: Bench) -> None:
    await bench.collect(names=("count",), num_episodes=2, tell_steps=True)
    bench.told.clear()
    called = make_turn(0, text="I look.")
    call = ToolCall(id="c", name="exec", arguments='{"command": "ls"}')
    bench.desk.heard[1](replace(called, message=replace(called.message, tool_calls=(call,))))
    bench.desk.heard[1](make_turn(1, text="Done. " + 1000 * "x"))
    first, second = [line["step"] for line in bench.told]
    assert (first["task"], first["attempt"]) == ("count", 1)
    calls = [{"name": "exec", "arguments": '{"command": "ls"}'}]
    assert first["turn"] == {"number": 1, "said": "I look.", "calls": calls}
    assert second["turn"] == {"number": 2, "said": "Done. " + 394 * "x", "calls": []}


async def test_nobody_hears_of_turns_who_did_not_ask_or_sees_the_steps(bench: Bench) -> None:
    await bench.collect(names=("count",), num_episodes=2)
    assert not bench.desk.heard
    builtin = Actor()
    builtin.name = "builtin"
    order = CollectOrder(
        tried=Tried(environment="counting"), run="again", num_episodes=1, group_size=1, tell_steps=True
    )
    await bench.collector(builtin).collect(order, bench.told.append)
    assert any("step" in line for line in bench.told)
    assert not bench.desk.heard


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"names": ("cuont",)}, "no task 'cuont'"), ({"names": ("find",)}, "no task to train on")],
)
async def test_tasks_that_are_not_there_are_named(bench: Bench, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        await bench.collect(**asked)
    assert not bench.desk.begun


async def test_versions_are_compared_at_the_same_held_out_tasks_and_nobody_learns(bench: Bench) -> None:
    actor = Actor(solves=["m@v2"])
    rows = await bench.collector(actor).examine(
        Tried(environment="counting", harness="actor"), ("v1", "v2"), num_tasks=5, attempts=2
    )
    assert [[(one.task, one.version, one.grade.share) for one in row] for row in rows] == [
        [("find", "v1", 0.0)] * 2,
        [("find", "v2", 1.0)] * 2,
    ]
    assert not any(learn for _, learn, _ in bench.desk.begun.values())


def test_an_examination_asks_all_kinds_of_tasks_and_always_the_same() -> None:
    kinds = [f"{kind}-{number}" for kind in "abcd" for number in range(25)]
    tasks = [_task(name) for name in kinds]
    asked = _spread(tasks, 16)
    assert asked == _spread(tasks, 16)
    assert len({one.ref.name for one in asked}) == 16
    assert {one.ref.name[0] for one in asked} == set("abcd")
    assert _spread(tasks, 100) == _spread(tasks, 200) == tasks


def _task(name: str) -> Task:
    return Task(ref=TaskRef(environment="toy", source="", name=name), split="held_out", instruction="Do it.")


async def test_each_group_asks_whether_it_may_begin(bench: Bench) -> None:
    asked: list[str] = []

    async def keep_pace(line: str) -> None:
        asked.append(line)

    collector = bench.collector(Actor())
    collector._keep_pace = keep_pace
    order = CollectOrder(tried=Tried(environment="counting"), run="r", num_episodes=6, group_size=2)
    await collector.collect(order, bench.told.append)
    assert asked == ["env:counting"] * 3


async def test_an_examination_in_which_nothing_can_be_graded_says_why(bench: Bench) -> None:
    with pytest.raises(EnvError, match=r"no attempt at 1 tasks could be graded: nope"):
        await bench.collector(Actor("fail nope")).examine(
            Tried(environment="counting", harness="actor"), ("v1",), num_tasks=1
        )


def test_orders_come_back_as_they_were_sent() -> None:
    tried = Tried(environment="counting", source="/tasks", harness="h", names=("a", "b"))
    order = CollectOrder(tried=tried, run="r", num_episodes=8, group_size=4, seed=3, tell_steps=True)
    assert CollectOrder.from_json(order.to_json()) == order
    exam = ExamOrder(tried=tried, versions=(0, 3), num_tasks=2, split="train")
    assert ExamOrder.from_json(exam.to_json()) == exam


def test_fewer_episodes_than_a_group_are_refused() -> None:
    with pytest.raises(ValueError, match="3 episodes are less than one group of 4"):
        CollectOrder(tried=Tried(environment="e"), run="r", num_episodes=3, group_size=4)

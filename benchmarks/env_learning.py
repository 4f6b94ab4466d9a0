"""Does an agent get better at tasks that it was not trained on: the real server, the embedded model, the shipped tasks.

    python benchmarks/env_learning.py [--json] [--quick] [--families NAMES] [--episodes N] [--process] [--seed N]
                                      [--tasks N] [--attempts N] [--dir DIRECTORY] [section.key=value ...]

For each family `openclaw-rl up` runs as a child and gets the order that `openclaw-rl env run` gives: groups of attempts
at tasks to train on, by the built-in agent. It trains as groups complete, every version passes its gate, and the last
samples are learned at the end. Then it is asked what `openclaw-rl env eval` asks: the base model and the version that
answers now attempt the same held-out tasks, equally often. A task counts once, with the share of its attempts that
solved it; the rise is the mean difference over the tasks, with a 95 % interval (bootstrap over tasks).

    calls       toolcall, calls-1: call a function with the right arguments. Held out: other functions, other values
    commands    terminal, commands: one shell command. Held out: other names, and a kind of task never trained on

What is trained on is told beside it: the share solved by the first and the last quarter of the attempts, the groups
whose attempts did not all end alike (the others teach nothing), the steps, and what became of the versions.

`--process` adds an arm in which outcome and process weigh a step together (training.advantage=step_wise: the judge
scores each step), beside the one that weighs its outcome alone: the same tasks in the same order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.load import LoadError
from benchmarks.system import System, require_disk
from openclaw_rl.cli.admin import follow_server
from openclaw_rl.cli.env.running import learn_rest
from openclaw_rl.config import StoreConfig
from openclaw_rl.envs.orders import Attempted, CollectOrder, ExamOrder, Tried
from openclaw_rl.errors import OpenClawError
from openclaw_rl.evaluation.measures import Interval, paired_difference
from openclaw_rl.types import Json
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.versions import live_number

TOLD_EVERY = 32
"""Attempts of a collection between two lines about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Tasks of one kind: where they come from, and how many attempts are made at them."""

    name: str
    track: str
    source: str
    episodes: int

    @property
    def line(self) -> str:
        return f"env:{self.track}"

    @property
    def tried(self) -> Tried:
        return Tried(environment=self.track, source=self.source)


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(name="calls", track="toolcall", source="calls-1", episodes=160),
        Family(name="commands", track="terminal", source="commands", episodes=160),
    )
}
GROUP = 8
ARMS: Mapping[str, tuple[str, ...]] = {"outcome": (), "process": ("training.advantage=step_wise",)}
"""What weighs a step, and the settings that say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a family in an arm."""

    family: str
    arm: str
    before: float
    after: float
    rise: Interval
    trained: Trained
    seconds: float

    @property
    def is_beyond_chance(self) -> bool:
        return self.rise.low > 0

    @property
    def figures(self) -> dict[str, float]:
        """By name; those of the arm that is the default have no mark of it."""
        prefix = self.family if self.arm == "outcome" else f"{self.family}_{self.arm}"
        found = {
            "before": self.before,
            "after": self.after,
            "rise": self.rise.value,
            "rise_low": self.rise.low,
            "rise_high": self.rise.high,
            "attempts": self.trained.attempts,
            "mixed_groups": self.trained.mixed,
            "steps": self.trained.steps,
            "seconds": self.seconds,
        }
        return {f"{prefix}_{name}": value for name, value in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What was trained on. `first` and `last`: what the first and the last quarter of the attempts solved; `versions`
    counts their states, `objections` are why versions were rejected."""

    attempts: int
    first: float
    last: float
    mixed: float
    steps: int
    versions: Mapping[str, int]
    objections: Sequence[str]

    def __str__(self) -> str:
        states = ", ".join(f"{number} {state}" for state, number in self.versions.items()) or "none"
        lines = [
            f"{self.attempts} attempts, {self.first:.0%} of the first quarter solved and {self.last:.0%} of the last; "
            f"{self.mixed:.0%} of the groups mixed; {self.steps} steps; versions: {states}"
        ]
        return "\n".join([*lines, *(f"  rejected: {one}" for one in self.objections)])


def solved_shares(rows: Sequence[Attempted]) -> dict[str, float]:
    """By task the share of the attempts at it that solved it."""
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for one in rows:
        found[one.task].append(one.grade.is_solved)
    return {task: fmean(solved) for task, solved in found.items()}


def rise_of(before: Mapping[str, float], after: Mapping[str, float]) -> Interval:
    """Over the same tasks."""
    if before.keys() != after.keys():
        raise LoadError("both versions attempt the same tasks")
    return paired_difference(list(before.values()), [after[task] for task in before], 0, is_share=True)


def mixed_share(made: Sequence[Attempted]) -> float:
    """Of the groups in which any attempt was graded, those whose rewards differ."""
    rewards: defaultdict[str, set[float]] = defaultdict(set)
    for one in made:
        if one.grade.reward is not None:
            rewards[one.group].add(one.grade.reward)
    return fmean(len(found) > 1 for found in rewards.values()) if rewards else 0.0


def solved_of(made: Sequence[Attempted]) -> float:
    return fmean(one.grade.is_solved for one in made) if made else 0.0


def kinds_of(shares: Mapping[str, float]) -> dict[str, float]:
    """The mean by kind of task: what its name begins with."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for task, share in shares.items():
        found[task.rpartition("-")[0]].append(share)
    return {kind: fmean(values) for kind, values in found.items()}


async def learn(family: Family, arm: str, chosen: argparse.Namespace, directory: Path) -> Result:
    """Collects, trains, and attempts held-out tasks before and after."""
    began = time.monotonic()
    with System(directory, "engine.type=embedded", *ARMS[arm], *chosen.settings) as system:
        store = StoreConfig(data_dir=system.data_dir)
        made = await _collect(family, store, chosen, began)
        if trouble := await learn_rest(store, family.line):
            raise LoadError(f"the last samples of {family.name} were not learned: {trouble}")
        rows = open_rows(store)
        versions = rows.versions(family.line)
        quarter = max(1, len(made) // 4)
        trained = Trained(
            attempts=len(made),
            first=solved_of(made[:quarter]),
            last=solved_of(made[-quarter:]),
            mixed=mixed_share(made),
            steps=sum(step.state == "done" for step in rows.steps(family.line)),
            versions=Counter(version.state for version in versions),
            objections=[f"{one.label}: {one.reason}" for one in versions if one.state == "rejected"],
        )
        say(f"{family.name}, {arm}, after {time.monotonic() - began:.0f} s: {trained}")
        number = live_number(rows, family.line)
        order = ExamOrder(tried=family.tried, versions=(0, number), num_tasks=chosen.tasks, attempts=chosen.attempts)
        found = await follow_server(store, "/try", order.to_json())
    shares = [solved_shares([Attempted.from_json(raw) for raw in row]) for row in found["versions"].values()]
    before, after = shares[0], shares[-1]
    for label, each in zip(("before", "after"), (before, after), strict=True):
        say(f"  {label}: " + ", ".join(f"{kind} {share:.0%}" for kind, share in kinds_of(each).items()))
    return Result(
        family=family.name,
        arm=arm,
        before=fmean(before.values()),
        after=fmean(after.values()),
        rise=rise_of(before, after),
        trained=trained,
        seconds=time.monotonic() - began,
    )


async def _collect(family: Family, store: StoreConfig, chosen: argparse.Namespace, began: float) -> list[Attempted]:
    made: list[Attempted] = []

    def hear(line: Any) -> None:
        if "attempt" in line:
            made.append(Attempted.from_json(line["attempt"]))
            if len(made) % TOLD_EVERY == 0:
                last = made[-TOLD_EVERY:]
                failed = {one.grade.failure for one in last if one.grade.failure}
                say(
                    f"  {time.monotonic() - began:4.0f} s  {len(made)} attempts, {solved_of(last):.0%} of the last "
                    f"{len(last)} solved" + "".join(f"; failed: {one}" for one in failed)
                )

    order = CollectOrder(
        tried=family.tried,
        run="learning",
        num_episodes=chosen.episodes or family.episodes,
        group_size=chosen.group,
        seed=chosen.seed,
    )
    await follow_server(store, "/collect", order.to_json(), on_told=hear)
    return made


def report(results: Sequence[Result]) -> str:
    """What a person reads."""
    lines = [f"{'family':10} {'weighed by':10} {'before':>7} {'after':>7} {'rise':>7}  95 % interval    time"]
    for one in results:
        interval = f"{one.rise.low:+.0%} … {one.rise.high:+.0%}"
        mark = "" if one.is_beyond_chance else "  not beyond chance"
        lines.append(
            f"{one.family:10} {one.arm:10} {one.before:7.0%} {one.after:7.0%} {one.rise.value:+7.0%}  {interval:15}  "
            f"{one.seconds:.0f} s{mark}"
        )
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(description="Measure how much better agents get at held-out tasks.")
    made.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    made.add_argument("--quick", action="store_true", help="a few attempts: whether it runs, not what it learns")
    made.add_argument("--families", default=",".join(FAMILIES), help="names, with commas between them")
    made.add_argument("--episodes", type=int, default=None, help="attempts to train on, of each family")
    made.add_argument("--group", type=int, default=GROUP, help="attempts at one task that are compared")
    made.add_argument("--seed", type=int, default=0, help="of the order of tasks")
    made.add_argument("--tasks", type=int, default=50, help="held-out tasks, at most")
    made.add_argument("--attempts", type=int, default=2, help="attempts of each version at each of them")
    made.add_argument("--process", action="store_true", help="also weigh steps by outcome and process together")
    made.add_argument("--dir", type=Path, default=None, help="where the servers keep their data; on a disk")
    made.add_argument("settings", nargs="*", metavar="section.key=value", help="settings of all servers")
    chosen = made.parse_intermixed_args()
    chosen.families = chosen.families.split(",")
    if unknown := [name for name in chosen.families if name not in FAMILIES]:
        made.error(f"there is no family {unknown[0]}; families are {', '.join(FAMILIES)}")
    if chosen.quick:
        chosen.episodes, chosen.tasks, chosen.attempts = chosen.episodes or 32, 8, 1
    return chosen


async def run(chosen: argparse.Namespace, directory: Path) -> list[Result]:
    arms = ARMS if chosen.process else ("outcome",)
    return [
        await learn(FAMILIES[name], arm, chosen, directory / f"{name}-{arm}")
        for name in chosen.families
        for arm in arms
    ]


def main() -> int:
    chosen, began = arguments(), time.monotonic()
    with tempfile.TemporaryDirectory(dir=chosen.dir) as made:
        try:
            require_disk(Path(made))
            results = asyncio.run(run(chosen, Path(made)))
        except (LoadError, OpenClawError) as error:
            print(error, file=sys.stderr)
            return 1
    seconds = time.monotonic() - began
    print(report(results))
    print(f"{seconds:.0f} s in all")
    if chosen.json:
        found: dict[str, Json] = {name: round(value, 4) for one in results for name, value in one.figures.items()}
        found["families_beyond_chance"] = sum(one.is_beyond_chance for one in results if one.arm == "outcome")
        print(json.dumps({**found, "seconds": round(seconds, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

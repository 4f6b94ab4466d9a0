"""`openclaw-rl env run`: an order for the running server, or one of its own, and what is told of it meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from openclaw_rl.cli.admin import ask_server, follow_server
from openclaw_rl.cli.own_server import own_server, refuse_settings
from openclaw_rl.cli.screen import make_console, one_line, plain_table, print_json, progress
from openclaw_rl.config import LoadedConfig, StoreConfig
from openclaw_rl.envs.orders import Attempted, CollectOrder, Tried
from openclaw_rl.evaluation.measures import share_interval
from openclaw_rl.types import Json
from openclaw_rl.views.rows import open_rows

_STEP_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What was asked for. `is_demo`: a directory of its own, removed at the end."""

    track: str
    source: str
    names: tuple[str, ...]
    num_episodes: int
    group_size: int
    harness: str
    name: str | None
    seed: int
    is_demo: bool
    show_steps: bool


@asynccontextmanager
async def a_server(
    loaded: LoadedConfig, *, files: Sequence[Path], overrides: Sequence[str], is_demo: bool, console: Console
) -> AsyncIterator[StoreConfig]:
    """Where the server is: the one that runs on the data directory, or one of the command's own, until the end."""
    store = loaded.config.store
    if not is_demo and await ask_server(store, "GET", "/train") is not None:
        refuse_settings(loaded)
        yield store
        return
    if is_demo:
        store = store.model_copy(update={"data_dir": Path(await asyncio.to_thread(tempfile.mkdtemp))})
    console.print(f"starting a server in {store.data_dir}", markup=False)
    try:
        async with own_server(store, files, overrides):
            yield store
    finally:
        if is_demo:
            await asyncio.to_thread(shutil.rmtree, store.data_dir, ignore_errors=True)


def run_tasks(
    loaded: LoadedConfig, plan: RunPlan, *, files: Sequence[Path], overrides: Sequence[str], as_json: bool
) -> int:
    """0 if attempts were graded; 130 after Ctrl-C."""
    order = CollectOrder(
        tried=Tried(environment=plan.track, source=plan.source, harness=plan.harness, names=plan.names),
        run=plan.name or f"{plan.track}-{time.strftime('%Y%m%d-%H%M%S')}",
        num_episodes=plan.num_episodes,
        group_size=plan.group_size,
        parallel=loaded.config.rollout.parallel_envs,
        workers=loaded.config.rollout.num_workers,
        seed=plan.seed,
        tell_steps=plan.show_steps,
    )
    console = make_console("stderr" if as_json else "stdout")
    try:
        told = asyncio.run(_collect(loaded, plan, order, files=files, overrides=overrides, console=console))
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: openclaw-rl env run {plan.track} --run {order.run}", markup=False)
        return 130
    if as_json:
        print_json(told.to_json(order.run))
    else:
        told.show(console, order.run)
    return 0 if told.made else 1


async def _collect(
    loaded: LoadedConfig,
    plan: RunPlan,
    order: CollectOrder,
    *,
    files: Sequence[Path],
    overrides: Sequence[str],
    console: Console,
) -> Collected:
    server = a_server(loaded, files=files, overrides=overrides, is_demo=plan.is_demo, console=console)
    async with server as store:
        with progress(show=True) as bars:
            told = Collected(console, bars, num_attempts=order.num_groups * order.group_size)
            told.counts = await follow_server(store, "/collect", order.to_json(), on_told=told.hear)
        versions = await asyncio.to_thread(lambda: open_rows(store).versions(f"env:{plan.track}"))
        told.versions = [version.label for version in versions]
    return told


class Collected:
    """What was told of a collection."""

    def __init__(self, console: Console, bars: Progress, *, num_attempts: int) -> None:
        self._console = console
        self._bars = bars
        self._bar = bars.add_task("attempts", total=num_attempts)
        self._began = time.monotonic()
        self.made: list[Attempted] = []
        self.broken: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.versions: list[str] = []

    def hear(self, line: dict[str, Any]) -> None:
        match line:
            case {"step": step}:
                show_step(self._console, step)
            case {"attempt": raw}:
                self.made.append(Attempted.from_json(raw))
                self._bars.update(self._bar, advance=1, description=self._summary())
                show_attempt(self._console, self.made[-1])
            case {"broken": broken}:
                if broken["task"] not in self.broken:
                    self._console.print(f"{broken['task']}  broken: {broken['reason']}", style="red", markup=False)
                self.broken[broken["task"]] = broken["reason"]
            case {"begun": begun}:
                self._bars.update(self._bar, total=begun["groups"] * begun["group_size"])

    @property
    def graded(self) -> list[Attempted]:
        return [one for one in self.made if one.grade.reward is not None]

    def _summary(self) -> str:
        minutes = max(time.monotonic() - self._began, 1e-9) / 60
        solved = sum(one.grade.is_solved for one in self.graded)
        failed = len(self.made) - len(self.graded)
        return f"{len(self.made) / minutes:.0f} episodes/min  {solved} solved  {failed} failed"

    def to_json(self, run: str) -> dict[str, Json]:
        return {
            "run": run,
            "attempts": [one.to_json() for one in self.made],
            "broken": self.broken,
            "counts": self.counts,
            "versions": self.versions,
        }

    def show(self, console: Console, run: str) -> None:
        graded = self.graded
        table = plain_table("", "", right=("",))
        if graded:
            solved = share_interval(sum(one.grade.is_solved for one in graded), len(graded))
            reward = sum(one.grade.reward or 0.0 for one in graded) / len(graded)
            table.add_row("solved", f"{solved.value:.0%} [{solved.low:.0%} … {solved.high:.0%}] of {len(graded)}")
            table.add_row("mean reward", f"{reward:.2f}")
        table.add_row("environment failed", str(len(self.made) - len(graded)))
        for reason in {one.grade.failure for one in self.made if one.grade.failure}:
            table.add_row("", one_line(reason, 100))
        if self.counts.get("same_outcome"):
            table.add_row("groups of one outcome, not trained on", str(self.counts["same_outcome"]))
        if self.counts.get("groups_before"):
            table.add_row("groups collected before", str(self.counts["groups_before"]))
        table.add_row("versions of the line", ", ".join(self.versions[-5:]) or "none yet: training goes on as it can")
        table.add_row("run", run)
        console.print(table)


def show_step(console: Console, step: dict[str, Any]) -> None:
    """One step of an agent, as it happens."""
    who = f"{step['task']} #{step['attempt']}"
    match step:
        case {"begins": instruction}:
            console.print(f"{who}  task: {one_line(instruction, _STEP_CHARS)}", style="bold", markup=False)
        case {"call": {"name": name, "arguments": arguments}}:
            console.print(f"{who}  → {name} {one_line(arguments, _STEP_CHARS)}", style="cyan", markup=False)
        case {"seen": seen, "is_error": is_error}:
            style = "red" if is_error else "dim"
            console.print(f"{who}  ← {one_line(seen, _STEP_CHARS)}", style=style, markup=False)
        case {"ran": output, "exit_code": code}:
            ended = "stopped at its time limit" if code is None else f"exit {code}"
            console.print(f"{who}  ran ({ended}): {one_line(output, _STEP_CHARS)}", style="dim", markup=False)


def show_attempt(console: Console, made: Attempted) -> None:
    """How an attempt ended."""
    who = f"{made.task} #{made.attempt}"
    if made.grade.reward is None:
        console.print(f"{who}  environment failed: {one_line(made.grade.failure, 200)}", style="red", markup=False)
        return
    mark, style = ("✓", "green") if made.grade.is_solved else ("✗", "yellow")
    text = f"{who}  {mark} reward {made.grade.reward:.2f}  {made.num_steps} steps  {made.seconds:.1f} s  {made.ended}"
    console.print(text, style=style, markup=False)

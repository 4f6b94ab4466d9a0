"""`openclaw-rl env check`: is a task fit to train on?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from openclaw_rl.cli.screen import make_console, one_line, print_json, progress
from openclaw_rl.config import Config
from openclaw_rl.envs.checking import Checked, check_task
from openclaw_rl.envs.registry import make_environment
from openclaw_rl.errors import TaskError
from openclaw_rl.protocols import Environment
from openclaw_rl.types import TaskRef
from openclaw_rl.wiring.envs import make_means

_AT_ONCE = 4
_LONGEST_PROBLEM = 3000
"""A remedy is a command to copy, and what went wrong in a build is told at its end."""


def check_tasks(config: Config, track: str, source: str, names: Sequence[str], *, as_json: bool) -> int:
    """0 if all are."""
    checked = asyncio.run(_check(config, track, source, names))
    if as_json:
        print_json([{**asdict(one), "is_good": one.is_good} for one in checked])
    else:
        console = make_console()
        for one in checked:
            told = "ok" if one.is_good else one_line(one.problem, _LONGEST_PROBLEM)
            style = "green" if one.is_good else "red"
            console.print(f"{one.ref.name}  {told}  {one.seconds:.1f} s", style=style, markup=False, soft_wrap=True)
            if one.report:
                console.print(one_line(one.report, 600), style="dim", markup=False)
        good = sum(one.is_good for one in checked)
        console.print(f"{good} of {len(checked)} tasks are fit to train on")
    return 0 if all(one.is_good for one in checked) else 1


async def _check(config: Config, track: str, source: str, names: Sequence[str]) -> list[Checked]:
    environment = make_environment(track, make_means(config))
    refs = await _refs(environment, source, names)
    turn = asyncio.Semaphore(_AT_ONCE)
    with progress(show=True) as bars:
        bar = bars.add_task("tasks", total=len(refs))

        async def check(ref: TaskRef) -> Checked:
            async with turn:
                found = await check_task(environment, ref)
            bars.update(bar, advance=1)
            return found

        return await asyncio.gather(*map(check, refs))


async def _refs(environment: Environment, source: str, names: Sequence[str]) -> list[TaskRef]:
    refs = [task.ref for task in await environment.tasks(source)]
    if unknown := set(names) - {ref.name for ref in refs}:
        raise TaskError(f"there is no task {min(unknown)!r} in {source}")
    return [ref for ref in refs if not names or ref.name in names]

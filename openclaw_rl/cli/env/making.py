"""`openclaw-rl env make-swe`: a tested repository -> a set of SWE tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from openclaw_rl.cli.screen import facts, make_console, print_json, progress
from openclaw_rl.config import Config
from openclaw_rl.envs.swe.interpreter import Interpreter, default_interpreter
from openclaw_rl.envs.swe.making import MadeTasks, MakingProgress, make_tasks
from openclaw_rl.types import Split
from openclaw_rl.wiring.envs import make_means


def make_set(
    config: Config, repo: Path, out: Path, *, num: int, venv: Path | None, split: Split, seed: int, as_json: bool
) -> int:
    """0 if there is a task now."""
    made = asyncio.run(_make(config, repo, out, num=num, venv=venv, split=split, seed=seed))
    rejected = dict(made.rejected)
    if as_json:
        names = [row.instance_id for row in made.rows]
        print_json({"made": names, "tried": made.num_tried, "tests": made.num_tests, "rejected": rejected})
    else:
        rows = [
            ("tasks made", str(len(made.rows))),
            ("tests that always pass", str(made.num_tests)),
            ("faults tried", str(made.num_tried)),
        ]
        rows += [
            (f"not taken: {reason}", str(times)) for reason, times in sorted(rejected.items(), key=lambda one: -one[1])
        ]
        make_console().print(facts(*rows))
        make_console().print(f"train on it: openclaw-rl env run swe --tasks {out}", markup=False)
    return 0 if made.rows else 1


async def _make(
    config: Config, repo: Path, out: Path, *, num: int, venv: Path | None, split: Split, seed: int
) -> MadeTasks:
    means = make_means(config)
    interpreter = await asyncio.to_thread(default_interpreter, means.cache) if venv is None else Interpreter.of(venv)
    with progress(show=True) as bars:
        bar = bars.add_task("tasks", total=num)

        def on_progress(at: MakingProgress) -> None:
            bars.update(bar, completed=at.num_made, description=f"{at.num_tried} faults tried")

        return await make_tasks(
            repo,
            out,
            num=num,
            seed=seed,
            sandbox=means.sandbox,
            interpreter=interpreter,
            split=split,
            on_progress=on_progress,
        )

"""`openclaw-rl demo`, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.options import AsJson, Loaded, command, opt

room = typer.Typer()


@command(room)
def demo(
    context: typer.Context,
    loaded: Loaded,
    user: Annotated[str, opt("--user NAME", "brief, plain, friendly, steps, or module:Class of your own.")] = "brief",
    turns: Annotated[int | None, opt("--turns N", "How many questions are asked.", min=1, show_default="24")] = None,
    minutes: Annotated[float | None, opt("--minutes M", "Instead of --turns: for how long, more than 0.")] = None,
    seed: Annotated[int, opt("--seed N", "Of questions, answers and words.", min=0)] = 0,
    num_questions: Annotated[int, opt("--num-questions N", "Held-out questions to measure with.", min=1, max=48)] = 12,
    max_tokens: Annotated[
        int, opt("--max-tokens N", "Longest answer; of one that is cut only the hint is learned.", min=1)
    ] = 256,
    plot: Annotated[
        Path | None, opt("--plot FILE", "The PNG of the curve.", show_default="openclaw-rl-demo.png")
    ] = None,
    keep: Annotated[bool, opt("--keep", "Keep the directory of a server that the demo starts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch it learn: a simulated user with a hidden preference talks to the model.

    Uses the running server, as a user of its own, or starts one. Shows conversations, verdicts, steps and versions as
    they happen, and what each version does with questions it never saw; ends with answers before and after, and a plot.
    Ctrl-C shows what there is so far.
    """
    from openclaw_rl.cli.demo.run import DemoPlan, run_demo
    from openclaw_rl.evaluation.users import load_user

    plan = DemoPlan(
        user=load_user(user, seed=seed),
        num_turns=turns,
        minutes=minutes,
        seed=seed,
        num_questions=num_questions,
        max_tokens=max_tokens,
    )
    files, settings = context.params["config"] or (), context.params["settings"] or ()
    raise typer.Exit(run_demo(loaded, plan, plot=plot, keep=keep, files=files, overrides=settings, as_json=as_json))

"""`openclaw-rl config --plan`: which process would run on which GPU, and what does not fit."""

from __future__ import annotations

from dataclasses import asdict

from rich.text import Text

from openclaw_rl.cli.screen import make_console, plain_table, print_json
from openclaw_rl.config.plan import LaunchPlan


def show_plan(plan: LaunchPlan, *, as_json: bool) -> None:
    """A table; below it what does not fit, and the settings that would."""
    if as_json:
        print_json(asdict(plan))
        return
    console = make_console()
    table = plain_table("process")
    table.add_column("GPUs")
    table.add_column("command", overflow="fold")
    for process in plan.processes:
        gpus = ", ".join(map(str, process.gpus)) or "none of its own"
        table.add_row(Text(process.name), Text(gpus), Text(process.command))
    console.print(table)
    for obstacle in plan.obstacles:
        console.print(Text(f"✗ {obstacle}", "red"), soft_wrap=True)
    if plan.proposal:
        fits = " ".join(plan.proposal)
        console.print(Text(f"What would start here: openclaw-rl up {fits}", "dim"), soft_wrap=True)

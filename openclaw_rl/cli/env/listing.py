"""`openclaw-rl env list`: which environments there are, with which tasks, and who can attempt them here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from openclaw_rl.cli.screen import make_console, one_line, plain_table, print_json
from openclaw_rl.config import Config
from openclaw_rl.envs.registry import HARNESSES, make_harness
from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Json, TaskSource
from openclaw_rl.wiring.envs import Environments, make_means


def list_environments(config: Config, *, as_json: bool) -> None:
    means = make_means(config)
    sources = {name: one.sources() for name, one in Environments(means).items()}
    lacking = {name: _lacks(name, config) for name in HARNESSES}
    box = means.sandbox.lacks()
    if as_json:
        print_json(_json(sources, lacking, box))
        return
    console = make_console()
    table = plain_table("environment", "tasks", "train", "held out", "", right=("train", "held out"))
    for name, found in sources.items():
        for at, source in enumerate(found):
            numbers = (str(source.num_train), str(source.num_held_out))
            table.add_row("" if at else name, source.name, *numbers, one_line(source.about, 80))
    console.print(table)
    console.print()
    agents = plain_table("harness", "")
    for name, why in lacking.items():
        agents.add_row(name, one_line(why, 110) or "ready")
    console.print(agents)
    if box:
        console.print(f"\nno boxes here: {box}", style="yellow", markup=False)


def _lacks(name: str, config: Config) -> str:
    """Why a harness cannot act here; empty where it can."""
    try:
        make_harness(name, make_means(config)).programs()
    except OpenClawError as error:
        return str(error)
    return ""


def _json(sources: Mapping[str, Sequence[TaskSource]], lacking: Mapping[str, str], box: str) -> Json:
    return {
        "environments": {name: [asdict(one) for one in found] for name, found in sources.items()},
        "harnesses": {name: {"ready": not why, "reason": why} for name, why in lacking.items()},
        "boxes": {"ready": not box, "reason": box},
    }

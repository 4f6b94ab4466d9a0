"""`openclaw-rl env list`: which environments there are, with which tasks, and who can attempt them here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from rich.console import Console

from openclaw_rl.cli.screen import make_console, one_line, plain_table, print_json
from openclaw_rl.config import Config
from openclaw_rl.envs.registry import HARNESSES, make_harness
from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Json, TaskSource
from openclaw_rl.wiring.envs import Environments, make_means

_LEVEL = re.compile(r"(?P<name>.+)-(?P<level>[0-9]+)")
_ABOUT_A_LEVEL = re.compile(r" Level [0-9]+ of [0-9]+\.$")
_SHORTEST_CHARS = 20


def list_environments(config: Config, *, as_json: bool) -> None:
    means = make_means(config)
    sources = {name: one.sources() for name, one in Environments(means).items()}
    lacking = {name: _lacks(name, config) for name in HARNESSES}
    box = means.sandbox.lacks()
    if as_json:
        print_json(_json(sources, lacking, box))
        return
    console = make_console()
    rows = [
        (name if at == 0 else "", f"{source.name} *".strip() if _is_meant(source) else source.name, source)
        for name, found in sources.items()
        for at, source in enumerate(_by_families(found))
    ]
    table = plain_table("environment", "tasks", "train", "held out", "about", right=("train", "held out"))
    room = _room(console, "environment", max(len(name) for _, name, _ in rows), "train", "held out")
    for environment, name, source in rows:
        numbers = (str(source.num_train), str(source.num_held_out))
        table.add_row(environment, name, *numbers, one_line(source.about, room))
    console.print(table)
    console.print("* without --tasks\n", style="dim", markup=False)
    agents = plain_table("harness", "state")
    room = _room(console, max(map(len, lacking)))
    for name, why in lacking.items():
        agents.add_row(name, one_line(_state(why), room))
    console.print(agents)
    if box:
        console.print(f"\nno boxes here: {box}", style="yellow", markup=False)


def _is_meant(source: TaskSource) -> bool:
    return source.is_default or not source.name


def _state(why: str) -> str:
    """What remedies it is the last that an error says."""
    return f"not ready: {why.rpartition('; ')[2]}" if why else "ready"


def _room(console: Console, *columns: str | int) -> int:
    """Characters for the last column, beside others that are as wide as this."""
    taken = sum(one if isinstance(one, int) else len(one) for one in columns) + 2 * len(columns)
    return max(console.width - taken - 2, _SHORTEST_CHARS)


def _by_families(sources: Sequence[TaskSource]) -> Iterator[TaskSource]:
    """Levels of one family, which differ in nothing else, as one."""
    levels: list[TaskSource] = []
    for source in sources:
        if levels and _family(source) != _family(levels[0]):
            yield _joined(levels)
            levels = []
        levels.append(source)
    if levels:
        yield _joined(levels)


def _family(source: TaskSource) -> TaskSource:
    found = _LEVEL.fullmatch(source.name)
    return replace(source, name=found["name"] if found else source.name, about=_ABOUT_A_LEVEL.sub("", source.about))


def _joined(levels: Sequence[TaskSource]) -> TaskSource:
    if len(levels) == 1:
        return levels[0]
    names = f"{levels[0].name} … {levels[-1].name.rpartition('-')[2]}"
    return replace(levels[0], name=names, about=_ABOUT_A_LEVEL.sub("", levels[0].about))


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

"""`openclaw-rl versions` and `rollback`: what was learned, and which of it answers. Looking reads the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from openclaw_rl.config import StoreConfig
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.admin import NoServer, ask_server, check_user_name
from openclaw_rl.terminal.backlog import training_note
from openclaw_rl.terminal.screen import ago, make_console, one_line, print_json
from openclaw_rl.types import IMPORTED, PRESENT_MODEL, TRAINING_PAUSED, Json, Step, Version


def show_versions(store: StoreConfig, *, user: str | None, as_json: bool) -> None:
    """Print the versions of all lines, or of one user's."""
    reader = StoreReader.open(store.data_dir, store.url)
    versions, present = reader.versions(user, every_model=True), reader.flag(PRESENT_MODEL)
    steps = {(step.line, step.number): step for line in {one.line for one in versions} for step in reader.steps(line)}
    if as_json:
        print_json([version_json(one, steps[one.line, one.number]) for one in versions])
    elif versions:
        make_console().print(versions_table(versions, steps, now=time.time(), present=present))
    else:
        make_console("stderr").print("Nothing was learned yet: all answers come from the base model, v0.", style="dim")
    for line, count in reader.num_returned().items():
        if user in (None, line):
            make_console("stderr").print(rebuilding_note(line, count), markup=False, soft_wrap=True)
    if (reason := reader.flag(TRAINING_PAUSED)) is not None:
        make_console("stderr").print(training_note(reason), style="bold yellow", markup=False, soft_wrap=True)


def roll_back(store: StoreConfig, number: int, *, user: str, untried: bool = False) -> None:
    """Put an earlier version of a user's line live, 0 for the base model."""
    check_user_name(user)
    answer = asyncio.run(ask_server(store, "POST", "/rollback", {"line": user, "number": number, "untried": untried}))
    if answer is None:
        raise NoServer("no server runs on this directory; start it with `openclaw-rl up`, then roll back")
    make_console("stderr").print(f"{answer['version']} answers from now on.")


def rebuilding_note(line: str, count: int) -> str:
    """How much of what was undone is still to be learned again."""
    return f"Rebuilding {line}: {count} sample{'' if count == 1 else 's'} of undone steps to learn from again."


def version_json(version: Version, step: Step) -> dict[str, Json]:
    """A version and the step that made it."""
    return {
        "version": version.label,
        "user": version.line,
        "number": version.number,
        "model": version.model,
        "parent": version.parent,
        "state": version.state,
        "created_at": version.created_at,
        "path": version.path,
        "sha256": version.sha256,
        "gate": version.gate,
        "reason": version.reason,
        "samples": list(step.sample_ids),
        "replayed": list(step.replayed_ids),
        "imported": step.reason == IMPORTED,
        "metrics": dict(step.metrics),
    }


def versions_table(
    versions: Sequence[Version], steps: Mapping[tuple[str, int], Step], *, now: float, present: str | None = None
) -> Table:
    """One row each, the newest first; the one that answers stands out. Those of other models than the present one say
    whose they are: they answer when that is started."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("version", "user", "state", "made", "samples", "loss", "reason"):
        table.add_column(title, no_wrap=True)
    for version in reversed(versions):
        step = steps[version.line, version.number]
        loss = step.metrics.get("loss/total")
        is_resting = present is not None and version.model not in (None, present)
        whose = f" for {version.base_model}" if is_resting else ""
        words = (
            *(version.label, version.line, version.state.replace("_", " ") + whose, ago(now - version.created_at)),
            *(
                "import" if step.reason == IMPORTED else str(len(step.sample_ids)),
                "" if loss is None else f"{loss:+.3f}",
                version.reason,
            ),
        )
        style = "bold green" if version.state == "live" and not is_resting else "dim"
        table.add_row(*(Text(one_line(word, 80)) for word in words), style=style)
    return table

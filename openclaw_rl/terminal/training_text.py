"""What `openclaw-rl train` came to: lines for a person, and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from openclaw_rl.terminal.backlog import Backlog, backlog_text
from openclaw_rl.terminal.importing import Imported, Rollout
from openclaw_rl.terminal.lesson_text import signed
from openclaw_rl.terminal.screen import one_line
from openclaw_rl.types import Json, Step, Version, version_label

Versions = Mapping[tuple[str, int], Version]


def outcome_json(
    steps: Sequence[Step],
    versions: Versions,
    backlog: Backlog,
    num_waiting: int,
    imported: Imported | None,
    *,
    is_interrupted: bool,
) -> dict[str, Json]:
    """`waiting` samples are left; `interrupted`: the step in hand is taken again next time."""
    return {
        "steps": [_step_json(step, versions.get((step.line, step.number))) for step in steps],
        "waiting": num_waiting,
        "learning": backlog.to_json(),
        "imported": None if imported is None else imported.to_json(),
        "interrupted": is_interrupted,
    }


def outcome_text(
    steps: Sequence[Step],
    versions: Versions,
    backlog: Backlog,
    num_waiting: int,
    imported: Imported | None,
    *,
    is_interrupted: bool,
) -> Group:
    """A row for each step, and what is to be done next."""
    parts: list[Table | Text] = []
    if imported is not None:
        parts.append(Text(imported_line(imported), "dim"))
    if steps:
        parts.append(_table(steps, versions))
    notes: list[str] = []
    if any(_state(step, versions) == "candidate" for step in steps):
        notes.append("Candidates answer nobody yet: the next `openclaw-rl up` tries the last of them at its gate.")
    if num_waiting:
        notes.append(f"{num_waiting} sample{'' if num_waiting == 1 else 's'} wait for a later step.")
    if is_interrupted:
        notes.append("Interrupted. Nothing is lost: a step that was begun is taken again next time.")
    return Group(*parts, *map(Text, notes), *([told] if (told := backlog_text(backlog)) else []))


def imported_line(imported: Imported) -> str:
    """In one sentence."""
    parts = [f"{imported.new} of {imported.read} turns are new"]
    if imported.not_exact:
        parts.append(f"{imported.not_exact} came without exact ids and are only kept (not_exact)")
    if imported.refused:
        parts.append(f"{imported.refused} were left out: another turn has their name, or their session opted out")
    return "; ".join(parts) + "."


def rollouts_text(sessions: Mapping[str, Sequence[Rollout]]) -> Text:
    """What an import would read."""
    turns = [rollout for each in sessions.values() for rollout in each]
    num_exact = sum(rollout.is_exact for rollout in turns)
    told = f"{len(turns)} turns of {len(sessions)} sessions would be read, {num_exact} of them with exact ids; "
    return Text(told + "what is new among them is judged first, and is not in the batch below.\n", "dim")


def _table(steps: Sequence[Step], versions: Versions) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("step", "user", "samples", "loss", "reward", "version", "state"):
        table.add_column(title, no_wrap=True)
    for step in steps:
        loss, reward = step.metrics.get("loss/total"), step.metrics.get("reward/mean")
        state = _state(step, versions)
        words = (
            *(str(step.number), step.line, str(len(step.sample_ids))),
            *("" if loss is None else f"{loss:+.3f}", "" if reward is None else signed(reward)),
            "" if step.state == "discarded" else version_label(step.line, step.number),
            f"{state}: {step.reason}" if step.reason else state,
        )
        table.add_row(*(Text(one_line(word, 80)) for word in words), style="yellow" if step.reason else "")
    return table


def _state(step: Step, versions: Versions) -> str:
    version = versions.get((step.line, step.number))
    return step.state if version is None else version.state.replace("_", " ")


def _step_json(step: Step, version: Version | None) -> dict[str, Json]:
    return {
        "user": step.line,
        "number": step.number,
        "state": step.state,
        "reason": step.reason,
        "parent": version_label(step.line, step.parent),
        "version": None if version is None else version.label,
        "version_state": None if version is None else version.state,
        "path": None if version is None else version.path,
        "samples": list(step.sample_ids),
        "replayed": list(step.replayed_ids),
        "anchors": step.num_anchors,
        "metrics": dict(step.metrics),
    }

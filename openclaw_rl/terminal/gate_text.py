"""`openclaw-rl versions N`: what the gate measured of a version, and the proof, as a small table."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import OpenClawError
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.screen import make_console, one_line, print_json
from openclaw_rl.terminal.versions import version_json
from openclaw_rl.types import Json, Version

_WORDS = {
    "kl": "drift, nats a token",
    "kl_prompt": "drift on the worst prompt",
    "length": "length, times",
    "tokens": "tokens an answer",
    "distinct": "different token pairs",
    "repetition": "repeated 3-grams",
    "entropy": "entropy, nats",
    "empty": "empty answers",
    "broken_calls": "broken tool calls",
    "refusals": "refusals",
    "questions": "questions back",
    "flattery": "flattery",
    "on_topic": "on topic",
    "towards_user": "towards the user, nats",
    "capability": "questions answered right",
}
"""What a person reads for each measure of a report."""


class NoSuchVersion(OpenClawError):
    """A version that is not in the store."""


def show_version(store: StoreConfig, number: int, *, user: str, as_json: bool) -> None:
    """Print one version of a user's with all that was measured of it."""
    reader = StoreReader.open(store.data_dir, store.url)
    known = {version.number: version for version in reader.versions(user, every_model=True)}
    if number not in known:
        have = ", ".join(map(str, known)) or "none"
        raise NoSuchVersion(f"there is no version {number} of {user}; there are {have}")
    version = known[number]
    if as_json:
        step = next(step for step in reader.steps(user) if step.number == number)
        print_json(version_json(version, step))
    else:
        make_console().print(version_text(version))


def version_text(version: Version) -> RenderableType:
    """Its state, and the report of its gate."""
    style = "bold green" if version.state == "live" else "bold"
    head = Text.assemble((f"{version.label}  {version.state.replace('_', ' ')}", style))
    if version.base_model is not None:
        head.append(f"\nTrained on {one_line(version.base_model, 300)}.", "dim")
    if version.reason:
        head.append(f"\n{one_line(version.reason, 300)}")
    report = version.gate if isinstance(version.gate, dict) else {}
    if not report.get("measures"):
        head.append("\nIts gate has not measured it.", "dim")
        return head
    return Group(head, _table(report), *_notes(report))


def _table(report: Mapping[str, Json]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("measure", "base", "parent", "candidate", "limit", "verdict"):
        table.add_column(title, no_wrap=True, justify="left" if title in ("measure", "limit", "verdict") else "right")
    for measure in report["measures"]:
        numbers = (_number(measure.get(name)) for name in ("base", "parent", "candidate"))
        verdict = Text("objects", "bold red") if measure.get("objection") else Text("fine" if measure["limit"] else "")
        table.add_row(_WORDS.get(measure["name"], measure["name"]), *numbers, measure["limit"], verdict)
    return table


def _notes(report: Mapping[str, Json]) -> list[Text]:
    notes = [Text(f"Compared with {report['parent']} in {report['seconds']:g} s.", "dim")]
    if proof := report.get("proof"):
        agreed = f"engine and trainer tell the same of {proof['num_tokens']} tokens by {proof['correlation']:.4f}"
        size = f"it changes them by {proof['change']:.1e} nats, and {proof['noise']:.0e} is noise"
        notes.append(Text(f"{'Not proved' if proof['reason'] else 'Proved'}: {agreed}; {size}.", "dim"))
    return notes


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"

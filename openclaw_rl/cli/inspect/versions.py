"""`openclaw-rl versions` and `rollback`: what was learned, what its gate measured, and which of it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.admin import NoServer, ask_server, check_line_name
from openclaw_rl.cli.inspect.text import training_note
from openclaw_rl.cli.screen import ago, make_console, one_line, plain_table, print_json
from openclaw_rl.cloud.bill import bill_text, read_bill
from openclaw_rl.config import Config, StoreConfig
from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.errors import NotFound
from openclaw_rl.release.watch import Count
from openclaw_rl.types import PRESENT_MODEL, TRAINING_PAUSED, Json, Version
from openclaw_rl.views.measures import MEASURE_WORDS
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.versions import VersionView, counts_json, list_versions, served_counts


def show_versions(store: StoreConfig, *, user: str | None, as_json: bool) -> None:
    """Print the versions of all lines, or of one user's."""
    rows = open_rows(store)
    found = list_versions(rows, user=user)
    if as_json:
        print_json([view.to_json() for view in found])
    elif found:
        make_console().print(versions_table(found, now=time.time(), present=rows.flag(PRESENT_MODEL)))
    else:
        make_console("stderr").print("Nothing was learned yet: all answers come from the base model, v0.", style="dim")
    if (bill := read_bill(store.data_dir)) is not None:
        make_console("stderr").print(bill_text(bill), style="dim", markup=False, soft_wrap=True)
    for line, count in rows.num_returned().items():
        if user in (None, line):
            make_console("stderr").print(rebuilding_note(line, count), markup=False, soft_wrap=True)
    if (reason := rows.flag(TRAINING_PAUSED)) is not None:
        make_console("stderr").print(training_note(reason), style="bold yellow", markup=False, soft_wrap=True)


def show_version(config: Config, number: int, *, user: str, as_json: bool) -> None:
    """Print one version of a user's with all that was measured of it, before it answered people and since."""
    rows, limits = open_rows(config.store), config.release
    known = {view.version.number: view for view in list_versions(rows, user=user)}
    if number not in known:
        raise NotFound(f"there is no version {number} of {user}; there are {', '.join(map(str, known)) or 'none'}")
    found = served_counts(rows, known[number].version, limits)
    if as_json:
        print_json({**known[number].to_json(), "served": counts_json(found, limits)})
        return
    make_console().print(gate_text(known[number].version))
    if found:
        make_console().print(counts_table(found, limits))


def roll_back(store: StoreConfig, number: int, *, user: str, untried: bool = False) -> None:
    """Put an earlier version of a user's line live, 0 for the base model."""
    check_line_name(user)
    answer = asyncio.run(ask_server(store, "POST", "/rollback", {"line": user, "number": number, "untried": untried}))
    if answer is None:
        raise NoServer("no server runs on this directory; start it with `openclaw-rl up`, then roll back")
    make_console("stderr").print(f"{answer['version']} answers from now on.")


def rebuilding_note(line: str, count: int) -> str:
    """How much of what was undone is still to be learned again."""
    return f"Rebuilding {line}: {count} sample{'' if count == 1 else 's'} of undone steps to learn from again."


def versions_table(found: Sequence[VersionView], *, now: float, present: str | None = None) -> Table:
    """One row each, the newest first; the one that answers stands out. Those of other models than the present one say
    whose they are: they answer when that is started."""
    table = plain_table("version", "user", "state", "made", "samples", "loss", "reason")
    for view in reversed(found):
        version, step = view.version, view.step
        loss = step.metrics.get("loss/total")
        is_resting = present is not None and version.model not in (None, present)
        whose = f" for {version.base_model}" if is_resting else ""
        words = (
            *(version.label, version.line, _state(version) + whose, ago(now - version.created_at)),
            *("import" if view.is_imported else str(len(step.sample_ids)), "" if loss is None else f"{loss:+.3f}"),
            version.reason,
        )
        style = "bold green" if version.state == "live" and not is_resting else "dim"
        table.add_row(*(Text(one_line(word, 80)) for word in words), style=style)
    return table


def gate_text(version: Version) -> RenderableType:
    """Its state, and the report of its gate."""
    style = "bold green" if version.state == "live" else "bold"
    head = Text.assemble((f"{version.label}  {_state(version)}", style))
    if version.base_model is not None:
        head.append(f"\nTrained on {one_line(version.base_model, 300)}.", "dim")
    if version.reason:
        head.append(f"\n{one_line(version.reason, 300)}")
    report = version.gate if isinstance(version.gate, dict) else {}
    if not report.get("measures"):
        head.append("\nIts gate has not measured it.", "dim")
        return head
    return Group(head, _gate_table(report), *_notes(report))


def _state(version: Version) -> str:
    is_on_probation = version.state == "live" and version.on_probation
    return "live, on probation" if is_on_probation else version.state.replace("_", " ")


def counts_table(found: Sequence[Count], limits: ReleaseConfig) -> Table:
    """What the watch has counted; what has set off its alarm stands out."""
    table = plain_table("its answers that", "its", "its parent's", "odds that it is bad", right=("its", "its parent's"))
    for count in found:
        odds = f"{count.odds:,.0f} to 1 ({limits.alarm_odds:,.0f} is an alarm)"
        shares = (f"{count.num} of {count.of}", f"{count.parent_num} of {count.parent_of}")
        table.add_row(count.kind.words, *shares, odds, style="bold red" if count.is_alarm else "")
    return table


def _gate_table(report: Mapping[str, Json]) -> Table:
    values = ("base", "parent", "candidate")
    table = plain_table("measure", *values, "limit", "verdict", right=values)
    for measure in report["measures"]:
        numbers = (_number(measure.get(name)) for name in values)
        verdict = Text("objects", "bold red") if measure.get("objection") else Text("fine" if measure["limit"] else "")
        table.add_row(MEASURE_WORDS.get(measure["name"], measure["name"]), *numbers, measure["limit"], verdict)
    return table


def _notes(report: Mapping[str, Json]) -> list[Text]:
    notes = [Text(f"Compared with {report['parent']} in {report['seconds']:g} s.", "dim")]
    if proof := report.get("proof"):
        agreed = f"engine and trainer tell the same of {proof['num_tokens']} tokens by {proof['correlation']:.4f}"
        size = f"it changes them by {proof['change']:.1e} nats, and {proof['noise']:.0e} is noise"
        checksum = f"; checksum {proof['checksum']}" if "checksum" in proof else ""
        notes.append(Text(f"{'Not proved' if proof['reason'] else 'Proved'}: {agreed}; {size}{checksum}.", "dim"))
    return notes


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"

"""`openclaw-rl why VERSION|TURN`: from a sentence to the tokens that it moved, and back. Only looks.

Probabilities are asked of the engine of a running server: the exact tokens of each sample, under the version and under
its parent. Where none runs everything else is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from rich.text import Text

from openclaw_rl.cli.admin import AdminRefused, ask_server
from openclaw_rl.cli.inspect.text import add_credit, add_judgement, add_row, room, sample_line, turn_text
from openclaw_rl.cli.screen import ago, make_console, print_json
from openclaw_rl.config import Config
from openclaw_rl.types import Json, Skip, Version, version_label
from openclaw_rl.views.lessons import LessonView
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.tokens import TokenTexts
from openclaw_rl.views.versions import VersionView
from openclaw_rl.views.why import Moved, Scores, Use, WhyTurn, WhyVersion, most_moved, read_why

_STILL = 0.01
"""A change of probability below this is not coloured."""


def show_why(config: Config, name: str, *, user: str | None, as_json: bool) -> None:
    """Print where a version comes from, or what became of a turn."""
    notes: list[str] = []

    def score(version: Version, sample_ids: Sequence[str]) -> Scores:
        body: dict[str, Json] = {"line": version.line, "number": version.number, "samples": list(sample_ids)}
        try:
            found = asyncio.run(ask_server(config.store, "POST", "/moved", body)) if sample_ids else {}
        except AdminRefused as error:
            notes.append(f"no probabilities: {error}")
            return {}
        if found is None:
            notes.append("no probabilities: no server runs here, and only its engine can tell them")
        return found or {}

    tokens = TokenTexts.find(config.model)
    why = read_why(open_rows(config.store), name, user=user, tokens=tokens, score=score)
    if as_json:
        print_json({**why.to_json(), "notes": list[Json](notes)})
        return
    console, now = make_console(), time.time()
    limit = room(console.width)
    if isinstance(why, WhyVersion):
        for part in version_parts(why, now=now, limit=limit):
            console.print(part, soft_wrap=True)
    else:
        console.print(turn_part(why, now=now, limit=limit), soft_wrap=True)
    for note in notes:
        make_console("stderr").print(Text(note), style="dim")


def version_parts(why: WhyVersion, *, now: float, limit: int | None) -> list[Text]:
    """The head of a version, and everything that it learned from."""
    parts = [version_head(why.view, now=now)]
    for taught in why.lessons:
        remark = "replayed" if taught.is_replayed else "new"
        if taught.lesson is None:
            remark = f"  {remark}; its turn is gone, or was undone"
            parts.append(Text.assemble(f"\n{taught.sample}", (remark, "yellow")))
            continue
        text = Text.assemble("\n", (taught.sample, "bold"), (f"  {remark}", "dim"))
        text.append_text(turn_text(taught.lesson.record, now=now, limit=limit))
        _add_lesson(text, taught.lesson, {taught.sample: taught.moved}, limit=limit)
        parts.append(text)
    return parts


def turn_part(why: WhyTurn, *, now: float, limit: int | None) -> Text:
    """A turn, what it taught, and what became of that."""
    text = turn_text(why.lesson.record, now=now, limit=limit)
    _add_lesson(text, why.lesson, why.moved, limit=limit)
    add_row(text, "became", became_text(why.lesson, why.uses), limit=limit)
    for one in why.uses:
        add_row(text, "", _use_text(one), limit=limit)
    return text


def _add_lesson(text: Text, lesson: LessonView, moved: Mapping[str, Sequence[Moved]], *, limit: int | None) -> None:
    """The judgement, and of the samples those that are named."""
    if lesson.judgement is not None:
        add_judgement(text, lesson.judgement, limit=limit)
    if lesson.credit is not None:
        add_credit(text, lesson.credit, limit=limit)
    for sample in lesson.samples:
        if sample.id not in moved:
            continue
        add_row(text, "sample", sample_line(sample), limit=limit)
        if tokens := moved[sample.id]:
            add_row(text, "tokens", tokens_text(tokens, limit=limit), limit=limit)
            for one in most_moved(tokens):
                add_row(text, "moved", moved_text(one), limit=limit)


def version_head(view: VersionView, *, now: float) -> Text:
    """The head of a version: what it is, what it was made from, and what its gate measured."""
    version, step = view.version, view.step
    parent = version_label(version.line, version.parent)
    style = "bold green" if version.state == "live" else "bold"
    facts = f"  {version.line}  {version.state.replace('_', ' ')}  from {parent}  made {ago(now - version.created_at)}"
    text = Text.assemble((version.label, style), (facts, "dim"))
    if version.reason:
        add_row(text, "because", version.reason, limit=None)
    if view.is_imported:
        add_row(text, "learned", "elsewhere: it was imported", limit=None)
    else:
        num_exercises = int(step.metrics.get("step/exercises", 0))
        counts = [
            (len(step.sample_ids), "new"),
            (len(step.replayed_ids), "replayed"),
            (step.num_anchors, "anchor" if step.num_anchors == 1 else "anchors"),
            (num_exercises, "exercise" if num_exercises == 1 else "exercises"),
        ]
        told = ", ".join(f"{count} {what}" for count, what in counts if count)
        metrics = (
            f"{name} {step.metrics[name]:+.3f}" for name in ("loss/total", "reward/mean") if name in step.metrics
        )
        add_row(text, "learned", "  ".join((told, *metrics)), limit=None)
    measured = {name: found for name, found in (version.gate or {}).items() if name not in ("live_at", "knowledge")}
    report = ", ".join(f"{name} {told}" for name, told in _figures(measured))
    add_row(text, "gate", report or "has not measured it", limit=None)
    return text


def became_text(lesson: LessonView, used: Sequence[Use]) -> Text:
    """What became of a turn, in a sentence."""
    record, credit = lesson.record, lesson.credit
    if record.turn.skip == Skip.UNDONE:
        return Text("undone: what it taught was taken back, and nobody learns from it again", "yellow")
    if any(one.is_in_live for one in used):
        return Text("part of the version that answers", "green")
    if any(one.step.state == "planned" for one in used):
        return Text("a step learns from it just now")
    if credit is not None and credit.samples:
        made = [one for one in used if one.version is not None]
        return Text("no part of the version that answers" if made else "it waits for a step")
    if record.turn.skip is not None or credit is not None:
        why = credit.skip if credit is not None and credit.skip is not None else record.turn.skip
        return Text(f"not learned from: {'no reason is known' if why is None else why.value}", "yellow")
    if record.next_state is None and not record.feedback:
        return Text("nothing followed it yet")
    return Text("it waits for the judge" if lesson.judgement is None else "it waits for credit")


def tokens_text(moved: Sequence[Moved], *, limit: int | None) -> Text:
    """The response, green where it became more likely, red where less."""
    text = Text()
    for one in moved:
        words = one.text.replace("\n", "⏎").replace("\t", " ")
        if limit is not None and len(text) + len(words) > limit - 1:
            return text.append("…", "dim")
        text.append(words, _style(one))
    return text


def moved_text(one: Moved) -> Text:
    return Text.assemble(
        (f"{one.text!r:<14}", _style(one)),
        f" {one.before:.3f} → {one.after:.3f}",
        (f"  #{one.index}", "dim"),
    )


def _style(one: Moved) -> str:
    change = one.after - one.before
    return "dim" if abs(change) < _STILL else "green" if change > 0 else "red"


def _figures(report: Json, prefix: str = "") -> list[tuple[str, str]]:
    """The numbers of a report, whatever it holds, by their path in it."""
    if isinstance(report, Mapping):
        return [found for name, value in report.items() for found in _figures(value, f"{prefix}{name} ".lstrip())]
    if isinstance(report, bool) or not isinstance(report, (int, float)):
        return []
    return [(prefix.strip(), f"{report:.3g}")]


def _use_text(use: Use) -> Text:
    how = "replayed in" if use.is_replay else "learned in"
    text = Text.assemble((f"{how} step {use.step.number}", "dim"))
    if use.version is None:
        return text.append(f"  {use.step.state}{': ' if use.step.reason else ''}{use.step.reason}", "dim")
    state = use.version.state.replace("_", " ")
    text.append(f"  {use.version.label}", "bold green" if use.version.state == "live" else "bold")
    return text.append(f"  {state}{': ' if use.version.reason else ''}{use.version.reason}", "dim")

"""`openclaw-rl why VERSION|TURN`: from a sentence to the tokens that it moved, and back. Only looks.

    sentence -> votes and hint -> tokens, each with its probability before and after -> version, gate and state

Probabilities are asked of the engine of a running server: the exact tokens of each sample, under the version and under
its parent. Where none runs everything else is shown.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.text import Text

from openclaw_rl.config import Config
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.admin import AdminRefused, ask_server
from openclaw_rl.terminal.inspection import Lesson as Told
from openclaw_rl.terminal.inspection import NotFound, find_session, lesson_json, read_lessons
from openclaw_rl.terminal.lesson_text import add_credit, add_verdict, sample_line
from openclaw_rl.terminal.screen import ago, make_console, print_json, printable
from openclaw_rl.terminal.tokens import TokenTexts
from openclaw_rl.terminal.turn_text import add_row, room, turn_text
from openclaw_rl.terminal.undoing import find_version
from openclaw_rl.terminal.versions import version_json
from openclaw_rl.types import (
    IMPORTED,
    Json,
    Lesson,
    Sample,
    Session,
    Skip,
    Step,
    Version,
    ancestry,
    split_turn_id,
    turn_id,
    turn_of_sample,
    version_label,
)

NUM_MOVED = 8
"""How many tokens are named, those that moved most."""

_STILL = 0.01
"""A change of probability below this is not coloured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One token of a response, and how likely it was under the version's parent and is under the version."""

    index: int
    text: str
    before: float
    after: float

    def to_json(self) -> dict[str, Json]:
        return {"index": self.index, "token": self.text, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A step that learned from a turn, and the version that it made, if it made one."""

    step: Step
    version: Version | None
    is_replay: bool
    is_in_live: bool


Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""By sample: the log-probs `before` and `after`."""


def show_why(config: Config, name: str, *, user: str | None, as_json: bool) -> None:
    """Print where a version comes from, or what became of a turn."""
    reader = StoreReader.open(config.store.data_dir, config.store.url)
    found = _turn_named(name, reader) or _version_or_turn(name, reader, user=user)
    teller = _Teller(config, reader, as_json=as_json)
    if isinstance(found, Version):
        teller.version(found)
    else:
        session, index = found
        teller.turn(session.user, session.id, index)


def _turn_named(name: str, reader: StoreReader) -> tuple[Session, int] | None:
    """The turn of exactly this name; a client may call a session 42, or v3."""
    with suppress(ValueError):
        of_turn, index = split_turn_id(name)
        if (session := reader.session(of_turn)) and reader.turn(of_turn, index):
            return session, index
    return None


def _version_or_turn(name: str, reader: StoreReader, *, user: str | None) -> Version | tuple[Session, int]:
    """A number alone is a version; what else is none may be the start of a session and an index."""
    try:
        return find_version(name, reader.versions(every_model=True), user=user)
    except NotFound as no_version:
        if name.removeprefix("v").isdigit():
            raise
        try:
            session, index = find_session(name, [summary.session for summary in reader.sessions()])
        except NotFound as error:
            raise NotFound(f"{no_version}; and {error}") from None
    if index is None:
        raise NotFound(f"{name} is a session; name one of its turns, such as {turn_id(session.id, 0)}")
    return session, index


class _Teller:
    def __init__(self, config: Config, reader: StoreReader, *, as_json: bool) -> None:
        self._config = config
        self._reader = reader
        self._as_json = as_json
        self._tokens = TokenTexts.find(config.model)
        self._notes: list[str] = []

    def version(self, version: Version) -> None:
        step = next(one for one in self._reader.steps(version.line) if one.number == version.number)
        lessons = [(one, self._lesson(one)) for one in (*step.sample_ids, *step.replayed_ids)]
        scores = self._scores(version, (*step.sample_ids, *step.replayed_ids))
        if self._as_json:
            told = [self._json(one, lesson, scores, step) for one, lesson in lessons]
            print_json({**version_json(version, step), "lessons": told, "notes": list[Json](self._notes)})
            return
        console, now = make_console(), time.time()
        console.print(version_text(version, step, now=now), soft_wrap=True)
        limit = room(console.width)
        for name, lesson in lessons:
            remark = "replayed" if name in step.replayed_ids else "new"
            if lesson is None:
                console.print(Text.assemble(f"\n{name}", (f"  {remark}; its turn is gone, or was undone", "yellow")))
                continue
            console.print(self._text(name, lesson, scores, remark=remark, now=now, limit=limit), soft_wrap=True)
        self._say_notes()

    def turn(self, line: str, session: str, index: int) -> None:
        (lesson,) = read_lessons(self._reader, session, index)
        live = next((one.number for one in self._reader.versions(line) if one.state == "live"), 0)
        used = uses(
            Lesson(line=line, turn=(session, index)),
            self._reader.versions(line, every_model=True),
            self._reader.steps(line),
            live=live,
        )
        first = next((one for one in used if one.version is not None), None)
        names = [sample.id for sample in lesson.credit.samples] if lesson.credit else []
        scores = {} if first is None or first.version is None else self._scores(first.version, names)
        if self._as_json:
            became: list[Json] = [_use_json(one) for one in used]
            told = {name: [one.to_json() for one in self._moved(name, lesson, scores)] for name in names}
            print_json({**lesson_json(lesson), "uses": became, "moved": told, "notes": list[Json](self._notes)})
            return
        console, now = make_console(), time.time()
        limit = room(console.width)
        text = turn_text(lesson.record, now=now, limit=limit)
        self._add_lesson(text, lesson, scores, names, limit=limit)
        add_row(text, "became", became_text(lesson, used), limit=limit)
        for one in used:
            add_row(text, "", _use_text(one), limit=limit)
        console.print(text, soft_wrap=True)
        self._say_notes()

    def _lesson(self, sample_id: str) -> Told | None:
        try:
            session, index = turn_of_sample(sample_id)
            (lesson,) = read_lessons(self._reader, session, index)
        except (ValueError, NotFound):
            return None
        is_there = lesson.credit is not None and any(one.id == sample_id for one in lesson.credit.samples)
        return lesson if is_there else None

    def _scores(self, version: Version, sample_ids: Sequence[str]) -> Scores:
        body: dict[str, Json] = {"line": version.line, "number": version.number, "samples": list(sample_ids)}
        try:
            found = asyncio.run(ask_server(self._config.store, "POST", "/moved", body)) if sample_ids else {}
        except AdminRefused as error:
            self._notes.append(f"no probabilities: {error}")
            return {}
        if found is None:
            self._notes.append("no probabilities: no server runs here, and only its engine can tell them")
        return found or {}

    def _text(self, name: str, lesson: Told, scores: Scores, *, remark: str, now: float, limit: int | None) -> Text:
        text = Text.assemble("\n", (name, "bold"), (f"  {remark}", "dim"))
        text.append_text(turn_text(lesson.record, now=now, limit=limit))
        self._add_lesson(text, lesson, scores, [name], limit=limit)
        return text

    def _add_lesson(self, text: Text, lesson: Told, scores: Scores, names: Sequence[str], *, limit: int | None) -> None:
        judgement, credit = lesson.judgement, lesson.credit
        if judgement is not None:
            add_verdict(text, "judged", judgement.judge, judgement.prompt_version, judgement.verdict, limit=limit)
        if credit is None:
            return
        add_credit(text, credit, limit=limit)
        for sample in credit.samples:
            if sample.id in names:
                add_row(text, "sample", sample_line(sample), limit=limit)
                if moved := self._moved(sample.id, lesson, scores):
                    add_row(text, "tokens", tokens_text(moved, limit=limit), limit=limit)
                    for one in most_moved(moved):
                        add_row(text, "moved", moved_text(one), limit=limit)

    def _moved(self, name: str, lesson: Told, scores: Scores) -> list[Moved]:
        sample = next((one for one in (lesson.credit.samples if lesson.credit else ()) if one.id == name), None)
        if sample is None or name not in scores:
            return []
        return moved_tokens(sample, self._tokens.texts(sample.response_ids, lesson.record.turn.model), scores[name])

    def _json(self, name: str, lesson: Told | None, scores: Scores, step: Step) -> dict[str, Json]:
        head: dict[str, Json] = {"sample": name, "replayed": name in step.replayed_ids}
        if lesson is None:
            return {**head, "lesson": None, "moved": []}
        return {
            **head,
            "lesson": lesson_json(lesson),
            "moved": [one.to_json() for one in self._moved(name, lesson, scores)],
        }

    def _say_notes(self) -> None:
        for note in self._notes:
            make_console("stderr").print(Text(printable(note)), style="dim")


def version_text(version: Version, step: Step, *, now: float) -> Text:
    """The head of a version: what it is, what it was made from, and what its gate measured."""
    parent = version_label(version.line, version.parent)
    style = "bold green" if version.state == "live" else "bold"
    facts = f"  {version.line}  {version.state.replace('_', ' ')}  from {parent}  made {ago(now - version.created_at)}"
    text = Text.assemble((version.label, style), (facts, "dim"))
    if version.reason:
        add_row(text, "because", version.reason, limit=None)
    if step.reason == IMPORTED:
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


def uses(lesson: Lesson, versions: Sequence[Version], steps: Sequence[Step], *, live: int) -> list[Use]:
    """Every step that learned from a lesson, and whether that is part of what answers now; the first one first."""
    made = {version.number: version for version in versions}
    in_live = set(ancestry(versions, live))
    found = []
    for step in steps:
        is_new = any(map(lesson.holds, step.sample_ids))
        if is_new or any(map(lesson.holds, step.replayed_ids)):
            version = made.get(step.number)
            is_in_live = version is not None and step.number in in_live
            found.append(Use(step=step, version=version, is_replay=not is_new, is_in_live=is_in_live))
    return found


def became_text(lesson: Told, used: Sequence[Use]) -> Text:
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


def moved_tokens(sample: Sample, texts: Sequence[str], scores: Mapping[str, Sequence[float]]) -> list[Moved]:
    """Every token of a response with both its probabilities."""
    return [
        Moved(index=index, text=text, before=math.exp(before), after=math.exp(after))
        for index, (text, before, after) in enumerate(zip(texts, scores["before"], scores["after"], strict=True))
    ]


def most_moved(moved: Sequence[Moved]) -> list[Moved]:
    """Those whose probability changed most, in the order of the response."""
    chosen = sorted(moved, key=lambda one: abs(one.after - one.before), reverse=True)[:NUM_MOVED]
    return sorted((one for one in chosen if one.after != one.before), key=lambda one: one.index)


def tokens_text(moved: Sequence[Moved], *, limit: int | None) -> Text:
    """The response, green where it became more likely, red where less."""
    text = Text()
    for one in moved:
        words = printable(one.text).replace("\n", "⏎").replace("\t", " ")
        if limit is not None and len(text) + len(words) > limit - 1:
            return text.append("…", "dim")
        text.append(words, _style(one))
    return text


def moved_text(one: Moved) -> Text:
    return Text.assemble(
        (f"{printable(one.text)!r:<14}", _style(one)),
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


def _use_json(use: Use) -> dict[str, Json]:
    version = use.version
    return {
        "step": use.step.number,
        "state": use.step.state,
        "replayed": use.is_replay,
        "version": None if version is None else version.label,
        "version_state": None if version is None else version.state,
        "reason": use.step.reason if version is None else version.reason,
        "in_live": use.is_in_live,
    }


def _use_text(use: Use) -> Text:
    how = "replayed in" if use.is_replay else "learned in"
    text = Text.assemble((f"{how} step {use.step.number}", "dim"))
    if use.version is None:
        return text.append(f"  {use.step.state}{': ' if use.step.reason else ''}{printable(use.step.reason)}", "dim")
    state = use.version.state.replace("_", " ")
    text.append(f"  {use.version.label}", "bold green" if use.version.state == "live" else "bold")
    return text.append(f"  {state}{': ' if use.version.reason else ''}{printable(use.version.reason)}", "dim")

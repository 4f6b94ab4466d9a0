"""Versions of a line as the page shows them: the list, one with its check, two side by side, and measures over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import BASE_VERSION, IMPORTED, Step, TurnTrace, Version, ancestry, turn_of_sample, version_label
from openclaw_rl.views.measures import MEASURE_WORDS, limits_of
from openclaw_rl.views.page.history import (
    Alarm,
    CheckMeasure,
    Comparison,
    MeasurePair,
    ProofText,
    ServedCount,
    Trend,
    TrendPoint,
    Trends,
    VersionDetail,
    VersionLesson,
    VersionPage,
    VersionRow,
    VersionStateWord,
)
from openclaw_rl.views.page.lines import LineHistory, read_history
from openclaw_rl.views.page.paging import Paging, place
from openclaw_rl.views.page.tracing import sentence
from openclaw_rl.views.versions import served_counts

_MAX_LESSONS = 100
"""Lessons that are named of one version, or of what one of two learned."""
_SENTENCE_CHARS = 300
_STEP_TRENDS = {"reward/mean": "mean reward of what it learned from", "loss/total": "loss of its step"}
_NO_TREND = frozenset({"kl_turn", "kl_prompt", "broken_calls"})
"""Of one version alone they say what is wrong; over time they say nothing more."""


def list_line_versions(rows: ReadStore, line: str, paging: Paging) -> VersionPage:
    """The newest first."""
    history, key = read_history(rows, line), paging.key(int)
    below = None if key is None else int(str(key[0]))
    numbers = [one for one in sorted(history.versions, reverse=True) if below is None or one < below]
    shown = numbers[: paging.limit]
    return VersionPage(
        items=tuple(version_row(history, history.versions[one]) for one in shown),
        next=place(shown[-1]) if len(numbers) > len(shown) else None,
        answering=version_label(line, history.answering),
    )


def version_row(history: LineHistory, version: Version) -> VersionRow:
    step, gate = history.steps.get(version.number), _gate(version)
    live_at = gate.get("live_at")
    return VersionRow(
        version=version.label,
        user=version.line,
        number=version.number,
        parent=version.parent,
        state=state_word(version),
        answers=version.number == history.answering,
        is_ancestor=version.number in history.in_live and version.number != history.answering,
        created_at=version.created_at,
        live_at=None if live_at is None else float(live_at),
        reason=version.reason,
        num_lessons=0 if step is None else len(step.sample_ids),
        num_replayed=0 if step is None else len(step.replayed_ids),
        is_imported=step is not None and step.reason == IMPORTED,
        loss=None if step is None else step.metrics.get("loss/total"),
        can_answer=version.may_answer and version.number != history.answering,
        has_weights=version.folder is not None,
    )


def state_word(version: Version) -> VersionStateWord:
    return "probation" if version.state == "live" and version.on_probation else version.state


def read_version(rows: ReadStore, line: str, number: int, limits: ReleaseConfig) -> VersionDetail:
    """One with all that was measured of it, before it answered people and since."""
    history = read_history(rows, line)
    version = _numbered(history, number)
    gate, step = _gate(version), history.steps.get(number)
    check = gate.get("check") if gate.get("measures") else None
    return VersionDetail(
        row=version_row(history, version),
        check="none" if check not in ("quick", "full") else check,
        check_s=gate.get("seconds"),
        measures=tuple(_measure(one) for one in gate.get("measures") or ()),
        proof=_proof(gate.get("proof")),
        served=tuple(
            ServedCount(
                name=one.kind.name,
                words=one.kind.words,
                num=one.num,
                of=one.of,
                parent_num=one.parent_num,
                parent_of=one.parent_of,
                odds=one.odds,
                alarm_odds=limits.alarm_odds,
                is_alarm=one.is_alarm,
            )
            for one in served_counts(rows, version, limits)
        ),
        lessons=() if step is None else _lessons(rows, [(step, one) for one in _names(step)]),
        metrics={} if step is None else dict(step.metrics),
        sha256=version.sha256,
        model=version.base_model or "",
    )


def compare(rows: ReadStore, line: str, left: int, right: int) -> Comparison:
    """Two of a line; 0 is the base model, which has measures of its own in every report."""
    history = read_history(rows, line)
    versions = [_numbered(history, one) if one else None for one in (left, right)]
    measures = [_values(history, one, other) for one, other in ((left, right), (right, left))]
    learned = [_learned(history, one) for one in (left, right)]
    names = [name for name in MEASURE_WORDS if name in measures[0] or name in measures[1]]
    return Comparison(
        left=None if versions[0] is None else version_row(history, versions[0]),
        right=None if versions[1] is None else version_row(history, versions[1]),
        measures=tuple(
            MeasurePair(name=name, words=MEASURE_WORDS[name], left=measures[0].get(name), right=measures[1].get(name))
            for name in names
        ),
        only_left=_lessons(rows, [pair for name, pair in learned[0].items() if name not in learned[1]]),
        only_right=_lessons(rows, [pair for name, pair in learned[1].items() if name not in learned[0]]),
    )


def read_trends(rows: ReadStore, line: str, limits: ReleaseConfig) -> Trends:
    """Measures of all versions of a line that were measured, the oldest first; and what sets off an alarm now."""
    history = read_history(rows, line)
    points: dict[str, list[TrendPoint]] = {}
    bounds: dict[str, tuple[float | None, float | None]] = {}
    for number in sorted(history.versions):
        version, step = history.versions[number], history.steps.get(number)
        for measure in _gate(version).get("measures") or ():
            if measure["name"] in _NO_TREND:
                continue
            bounds[measure["name"]] = limits_of(measure.get("limit") or "")
            point = _point(version, measure["candidate"], measure.get("parent"), measure.get("base"))
            points.setdefault(measure["name"], []).append(point)
        for name in _STEP_TRENDS:
            if step is not None and name in step.metrics:
                points.setdefault(name, []).append(_point(version, step.metrics[name], None, None))
    words = {**MEASURE_WORDS, **_STEP_TRENDS}
    return Trends(
        user=line,
        trends=tuple(
            Trend(
                name=name,
                words=words.get(name, name),
                points=tuple(found),
                low=bounds.get(name, (None, None))[0],
                high=bounds.get(name, (None, None))[1],
            )
            for name, found in points.items()
        ),
        alarms=tuple(_alarms(rows, history, limits)),
    )


def number_of(rows: ReadStore, line: str, label: str) -> int:
    """The number that a label means on a line; a number alone does too."""
    if label in (BASE_VERSION, "0"):
        return 0
    for version in rows.versions(line):
        if label in (version.label, str(version.number), f"v{version.number}"):
            return version.number
    raise NotFound(f"there is no version {label[:80]!r} here")


def _alarms(rows: ReadStore, history: LineHistory, limits: ReleaseConfig) -> list[Alarm]:
    """Of what answers now what people's turns say; of the last versions why they were refused or taken back."""
    told = []
    live = history.versions.get(history.answering)
    if live is not None:
        told += [
            Alarm(version=live.label, words=str(one), at=None)
            for one in served_counts(rows, live, limits)
            if one.is_alarm
        ]
    newest = sorted(history.versions, reverse=True)[:20]
    return told + [
        Alarm(version=one.label, words=one.reason, at=one.created_at)
        for one in (history.versions[number] for number in newest)
        if one.state in ("rejected", "rolled_back") and one.reason
    ]


def _point(version: Version, value: float, parent: float | None, base: float | None) -> TrendPoint:
    return TrendPoint(
        version=version.label,
        number=version.number,
        at=version.created_at,
        state=state_word(version),
        value=value,
        parent=parent,
        base=base,
    )


def _numbered(history: LineHistory, number: int) -> Version:
    if number not in history.versions:
        raise NotFound(f"there is no version {number} of {history.line}")
    return history.versions[number]


def _gate(version: Version) -> Mapping[str, Any]:
    return version.gate if isinstance(version.gate, dict) else {}


def _measure(raw: Mapping[str, Any]) -> CheckMeasure:
    low, high = limits_of(raw.get("limit") or "")
    return CheckMeasure(
        name=raw["name"],
        words=MEASURE_WORDS.get(raw["name"], raw["name"]),
        base=raw.get("base"),
        parent=raw.get("parent"),
        candidate=raw.get("candidate"),
        limit=raw.get("limit") or "",
        low=low,
        high=high,
        objects=bool(raw.get("objection")),
    )


def _proof(raw: Mapping[str, Any] | None) -> ProofText | None:
    if not raw:
        return None
    agreed = f"engine and trainer tell the same of {raw['num_tokens']} tokens by {raw['correlation']:.4f}"
    size = f"it changes them by {raw['change']:.1e} nats, and {raw['noise']:.0e} is noise"
    why = f"{raw['reason']}: " if raw.get("reason") else ""
    return ProofText(is_proved=not raw.get("reason"), words=f"{why}{agreed}; {size}")


def _values(history: LineHistory, number: int, other: int) -> dict[str, float]:
    """What was measured of a version; of the base model what its last report, or the other one's, says."""
    if number:
        return {one["name"]: one["candidate"] for one in _gate(history.versions[number]).get("measures") or ()}
    measures = _gate(history.versions[other]).get("measures") or () if other else ()
    return {one["name"]: one["base"] for one in measures if one.get("base") is not None}


def _learned(history: LineHistory, number: int) -> dict[str, tuple[Step, str]]:
    """Every sample that a version or one that it stands on learned from."""
    steps = (history.steps[one] for one in ancestry(list(history.versions.values()), number) if one in history.steps)
    return {name: (step, name) for step in steps for name in step.sample_ids}


def _names(step: Step) -> tuple[str, ...]:
    return (*step.sample_ids, *step.replayed_ids)


def _lessons(rows: ReadStore, named: Sequence[tuple[Step, str]]) -> tuple[VersionLesson, ...]:
    named = named[:_MAX_LESSONS]
    traces = rows.traces(list({turn for _, name in named if (turn := _turn(name)) is not None}))
    return tuple(_lesson(step, name, traces) for step, name in named)


def _lesson(step: Step, name: str, traces: Mapping[tuple[str, int], TurnTrace]) -> VersionLesson:
    turn = _turn(name)
    trace = None if turn is None else traces.get(turn)
    is_there = trace is not None and any(one.id == name for one in trace.samples)
    judgement = trace.judgement if trace is not None and is_there else None
    return VersionLesson(
        sample=name,
        turn=trace.turn.id if trace is not None and is_there else None,
        sentence=sentence(trace)[:_SENTENCE_CHARS] if trace is not None and is_there else "",
        hint=judgement.verdict.hints[0] if judgement is not None and judgement.verdict.hints else "",
        is_replayed=name in step.replayed_ids,
    )


def _turn(name: str) -> tuple[str, int] | None:
    try:
        return turn_of_sample(name)
    except ValueError:
        return None

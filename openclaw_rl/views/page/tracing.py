"""A turn with all that became of it, and its line -> its correction: where it stands, in words and with times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import TAKEN_BACK, Message, SampleMark, Skip, Step, TurnTrace, Version, hint_in, line_of
from openclaw_rl.views.lessons import signed, verdict_label
from openclaw_rl.views.page.corrections import Correction, CorrectionStage, CorrectionState, LeftOut
from openclaw_rl.views.page.left_out import left_out
from openclaw_rl.views.page.lines import LineHistory, read_history

_SCORES = {1: "👍", -1: "👎", 0: "neutral"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HowFar:
    """How far a lesson came: the state, its sentence, and the step and version that it is about."""

    state: CorrectionState
    words: str
    step: Step | None = None
    version: Version | None = None
    left_out: LeftOut | None = None


def read_corrections(rows: ReadStore, turns: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Correction]:
    """Of the turns that something was said about."""
    traces = rows.traces(list(turns))
    histories = read_histories(rows, traces.values())
    return {
        name: correction(trace, histories[line_of(trace.session)]) for name, trace in traces.items() if trace.is_heard
    }


def read_histories(rows: ReadStore, traces: Iterable[TurnTrace]) -> dict[str, LineHistory]:
    """Of every line that these turns teach."""
    return {line: read_history(rows, line) for line in {line_of(one.session) for one in traces}}


def correction(trace: TurnTrace, history: LineHistory) -> Correction:
    """What became of what was said about one turn."""
    standing, verdict = stand(trace, history), None if trace.judgement is None else trace.judgement.verdict
    return Correction(
        turn=trace.turn.id,
        state=standing.state,
        words=standing.words,
        sentence=sentence(trace),
        stages=_stages(trace, standing),
        verdict=None if verdict is None else verdict_label(verdict),
        hints=() if verdict is None else verdict.hints,
        version=None if standing.version is None else standing.version.label,
        left_out=standing.left_out,
    )


def sentence(trace: TurnTrace) -> str:
    """What the person said: outright if they did, else the words that followed."""
    said = [hint_in(one.text) or one.text or _SCORES.get(one.score or 0, "") for one in trace.feedback]
    if said:
        return said[-1]
    return words_of(() if trace.next_state is None else trace.next_state.messages)


def words_of(messages: Sequence[Message]) -> str:
    """The person's words among some messages, else what tools said."""
    people = [one.content for one in messages if one.role == "user"]
    return "\n".join(people or [one.content for one in messages])


def stand(trace: TurnTrace, history: LineHistory) -> HowFar:
    """How far it came. Newer evidence than what was judged opens the way again."""
    skip = _skip(trace)
    if skip is Skip.REJECTED:
        told = left_out(skip)
        return HowFar(state="left_out", words=f"left out: {told.words}", left_out=told)
    if skip is Skip.UNDONE:
        version = next((made for _, made in _used(trace, history) if made is not None), None)
        words = "taken back" if version is None else f"taken back: {version.label} does not answer any more"
        return HowFar(state="taken_back", words=words, version=version, left_out=left_out(skip))
    if trace.is_unjudged:
        return HowFar(state="heard", words="heard; waits for the judge")
    if used := [one for one in _used(trace, history) if one[0].state != "discarded"]:
        return _learned(used, history)
    if trace.samples:
        return _waiting(trace, history)
    if trace.is_uncredited:
        return HowFar(state="judged", words=f"judged {_verdict(trace)}; is made into a lesson")
    if skip is not None:
        told = left_out(skip)
        return HowFar(state="left_out", words=f"left out: {told.words}", left_out=told)
    return HowFar(state="heard", words="heard")


def _skip(trace: TurnTrace) -> Skip | None:
    return trace.turn.skip if trace.credit is None or trace.turn.skip in TAKEN_BACK else trace.credit.skip


def _used(trace: TurnTrace, history: LineHistory) -> list[tuple[Step, Version | None]]:
    """The steps that have its samples now, or had them when they were taken back; the last one first."""
    has = {one.step for one in trace.samples if one.step is not None}
    if _skip(trace) is Skip.UNDONE:
        has |= {number for name in _names(trace) for number in history.tried.get(name, ())}
    numbers = sorted((one for one in has if one in history.steps), reverse=True)
    return [(history.steps[number], history.versions.get(number)) for number in numbers]


def _names(trace: TurnTrace) -> tuple[str, ...]:
    return (trace.turn.id, f"{trace.turn.id}+demonstration", f"{trace.turn.id}+rewrite")


def _learned(used: Sequence[tuple[Step, Version | None]], history: LineHistory) -> HowFar:
    """Of the steps that learned from it the one that came furthest tells."""
    for step, version in used:
        if version is not None and version.number in history.in_live:
            if version.state == "no_effect":
                label = history.label(history.answering)
                return HowFar(state="live", words=f"live, as a small part of {label}", step=step, version=version)
            words = f"live in {version.label}"
            if version.on_probation and version.state == "live":
                words += ", on probation until the full check ends"
            return HowFar(state="live", words=words, step=step, version=version)
    step, version = used[0]
    if version is None:
        return HowFar(state="learning", words="being learned", step=step)
    match version.state:
        case "candidate":
            return HowFar(state="checking", words=f"{version.label} is being checked", step=step, version=version)
        case "no_effect":
            words = f"{version.label} changes too little alone; the next step builds on it"
            return HowFar(state="checking", words=words, step=step, version=version)
        case "rejected":
            words = f"{version.label} did not pass: {version.reason}"
            return HowFar(state="rejected", words=words, step=step, version=version)
        case _:
            words = f"{version.label} does not answer any more"
            words += f": {version.reason}" if version.reason else ""
            return HowFar(state="taken_back", words=words, step=step, version=version)


def _waiting(trace: TurnTrace, history: LineHistory) -> HowFar:
    """Judged, and made into samples that no step has."""
    told = f"judged {_verdict(trace)}; "
    if any(one.is_returned for one in trace.samples):
        return HowFar(state="judged", words=told + "waits to be learned again, without what was taken back")
    if tried := _last_try(trace.samples, history):
        version = history.versions.get(tried)
        if version is not None and version.state == "rejected":
            words = f"{version.label} did not pass: {version.reason}; the lesson is tried again"
            return HowFar(state="rejected", words=words, step=history.steps[tried], version=version)
        return HowFar(state="judged", words=told + "a step with it was given up, and it is tried again")
    return HowFar(state="judged", words=told + "waits for its step")


def _last_try(samples: Sequence[SampleMark], history: LineHistory) -> int | None:
    return max((number for one in samples for number in history.tried.get(one.id, ())), default=None)


def _verdict(trace: TurnTrace) -> str:
    return "" if trace.judgement is None else verdict_label(trace.judgement.verdict)


def _stages(trace: TurnTrace, standing: HowFar) -> tuple[CorrectionStage, ...]:
    """The five, each with when it was reached and how long it took."""
    judgement, step, version = trace.judgement, standing.step, standing.version
    is_judged = judgement is not None and not trace.is_unjudged
    gate = version.gate if version is not None and isinstance(version.gate, dict) else {}
    live_at = gate.get("live_at") if standing.state == "live" else None
    checked_at = None
    if version is not None and step is not None and "seconds" in gate and step.finished_at is not None:
        checked_at = float(live_at) if live_at is not None else step.finished_at + float(gate["seconds"])
    times: list[tuple[str, float | None, str]] = [
        ("heard", trace.heard_at, "heard"),
        ("judged", judgement.judged_at if is_judged and judgement is not None else None, _why(trace)),
        ("learning", None if step is None else step.planned_at, _learning_words(standing)),
        ("checked", checked_at, "" if version is None else _checked_words(version)),
        ("live", None if live_at is None else float(live_at), standing.words if standing.state == "live" else ""),
    ]
    told, before = [], trace.heard_at
    for name, at, words in times:
        told.append(
            CorrectionStage(
                name=name,  # type: ignore[arg-type]  # one of the five above
                at=at,
                took_s=None if at is None or name == "heard" else max(0.0, at - before),
                words=words,
            )
        )
        before = before if at is None else at
    return tuple(told)


def _why(trace: TurnTrace) -> str:
    if trace.judgement is None:
        return ""
    verdict = trace.judgement.verdict
    return f"{verdict_label(verdict)}: {verdict.reason}" if verdict.reason else verdict_label(verdict)


def _learning_words(standing: HowFar) -> str:
    if standing.step is None:
        return ""
    loss = standing.step.metrics.get("loss/total")
    return f"step {standing.step.number}" + ("" if loss is None else f", loss {signed(loss)}")


def _checked_words(version: Version) -> str:
    match version.state:
        case "candidate":
            return "is being checked"
        case "rejected":
            return version.reason
        case "no_effect":
            return "changes too little alone"
        case _:
            return "passed, by the quick check so far" if version.on_probation else "passed"

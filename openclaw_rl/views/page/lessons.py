"""Lessons, the newest first and a part at a time; and one of them with everything that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import HeardPlace, Lesson, Sample, Session, TurnTrace, Verdict, Vote, line_of
from openclaw_rl.views.health import decided_by
from openclaw_rl.views.lessons import verdict_label
from openclaw_rl.views.page.languages import language_of
from openclaw_rl.views.page.lines import LineHistory
from openclaw_rl.views.page.paging import Paging, place
from openclaw_rl.views.page.talking import said_text
from openclaw_rl.views.page.teaching import (
    Action,
    LessonDetail,
    LessonFilter,
    LessonPage,
    LessonRow,
    LessonTokens,
    SampleTold,
    TokenTold,
    TokenWay,
    UseText,
    VerdictKind,
    VoteText,
)
from openclaw_rl.views.page.tracing import correction, read_histories, sentence
from openclaw_rl.views.tokens import TokenTexts
from openclaw_rl.views.why import Moved, moved_tokens, uses

_SENTENCE_CHARS = 300
_LOOKED_AT = 200
"""Lessons that one request looks through for those that a filter wants; `next` goes on behind them."""


def list_lessons(
    rows: ReadStore, line: str | None, wanted: LessonFilter, paging: Paging, *, session: str | None = None
) -> LessonPage:
    """Of a line, or of all. With a filter a part may be short, and still not the last."""
    key = paging.key(float, str, int)
    after = None if key is None else (float(str(key[0])), str(key[1]), int(str(key[2])))
    found: list[LessonRow] = []
    histories: dict[str, LineHistory] = {}
    num_looked = 0
    size = paging.limit + 1 if wanted.is_empty else _LOOKED_AT
    while num_looked < _LOOKED_AT:
        places = rows.heard_part(line, session=session, after=after, limit=size)
        traces = rows.traces([(one.session, one.index) for one in places])
        missing = [one for one in traces.values() if line_of(one.session) not in histories]
        histories |= read_histories(rows, missing)
        for one in places:
            trace = traces.get((one.session, one.index))
            row = None if trace is None else lesson_row(trace, histories[line_of(trace.session)], one)
            if row is not None and wanted.wants(row):
                if len(found) == paging.limit:
                    return LessonPage(items=tuple(found), next=None if after is None else place(*after))
                found.append(row)
            after = (one.at, one.session, one.index)
        num_looked += len(places)
        if len(places) < size:
            return LessonPage(items=tuple(found), next=None)
    return LessonPage(items=tuple(found), next=None if after is None else place(*after))


def read_lesson(rows: ReadStore, session: Session, index: int, tokens: TokenTexts) -> LessonDetail:
    """One, without probabilities: those are an engine's to tell."""
    trace, history = _traced(rows, session, index)
    judgement = trace.judgement
    verdict = None if judgement is None else judgement.verdict
    state = correction(trace, history)
    return LessonDetail(
        row=lesson_row(trace, history, HeardPlace(at=trace.heard_at, session=session.id, index=index)),
        asked=tuple(map(said_text, trace.turn.asked)),
        answer=said_text(trace.turn.answer),
        followed=tuple(map(said_text, () if trace.next_state is None else trace.next_state.messages)),
        correction=state,
        reason="" if verdict is None else verdict.reason,
        judged_by="" if judgement is None else f"{judgement.judge} ({judgement.prompt_version})",
        votes=tuple(map(_vote, () if verdict is None else verdict.votes)),
        hints=() if verdict is None else verdict.hints,
        samples=tuple(_sample(one, tokens, trace.turn.model, ()) for one in _samples(rows, trace)),
        uses=_uses(trace, history),
        probabilities="asked for alone",
        actions=actions(trace, state.state),
    )


def read_tokens(
    rows: ReadStore,
    session: Session,
    index: int,
    tokens: TokenTexts,
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    why_not: str,
) -> LessonTokens:
    """The same lesson's samples with what an engine told, where it told anything."""
    trace, history = _traced(rows, session, index)
    model = trace.turn.model

    def moved(sample: Sample) -> Sequence[Moved]:
        known = scores.get(sample.id)
        return () if known is None else moved_tokens(tokens.texts(sample.response_ids, model), known)

    return LessonTokens(
        turn=trace.turn.id,
        version=correction(trace, history).version,
        samples=tuple(_sample(one, tokens, model, moved(one)) for one in _samples(rows, trace)),
        probabilities=why_not,
    )


def lesson_row(trace: TurnTrace, history: LineHistory, at: HeardPlace) -> LessonRow:
    """As a list shows it."""
    state, said = correction(trace, history), sentence(trace)
    judgement = trace.judgement
    return LessonRow(
        turn=trace.turn.id,
        session=trace.session.id,
        user=line_of(trace.session),
        at=at.at,
        sentence=said[:_SENTENCE_CHARS],
        language=language_of(said),
        verdict=state.verdict,
        kind="unjudged" if judgement is None or trace.is_unjudged else verdict_kind(judgement.verdict),
        judge="" if judgement is None else decided_by(judgement),
        hint=state.hints[0] if state.hints else "",
        state=state.state,
        words=state.words,
        version=state.version,
    )


def verdict_kind(verdict: Verdict) -> VerdictKind:
    """Good, neutral or bad; or why it is none of these."""
    match verdict.score:
        case None:
            return "failed" if verdict.outcome == "failed" else "abstained"
        case 1:
            return "good"
        case 0:
            return "neutral"
        case _:
            return "bad"


def actions(trace: TurnTrace, state: str) -> tuple[Action, ...]:
    """What can be done about a lesson now."""
    is_learned = any(one.step is not None for one in trace.samples)
    able: list[Action] = []
    if state != "taken_back":
        if not is_learned:
            able += ["accept", "reject", "hint"]
        else:
            able.append("undo")
    return (*able, "forget")


def _traced(rows: ReadStore, session: Session, index: int) -> tuple[TurnTrace, LineHistory]:
    trace = rows.traces([(session.id, index)]).get((session.id, index))
    if trace is None or not trace.is_heard:
        raise NotFound(f"nothing was said about turn {session.id}.{index}, so there is no lesson")
    return trace, read_histories(rows, [trace])[line_of(session)]


def _samples(rows: ReadStore, trace: TurnTrace) -> list[Sample]:
    return rows.samples_named([one.id for one in trace.samples])


def _vote(vote: Vote) -> VoteText:
    if vote.score is None:
        answer = "failed"
    elif vote.question == "score":
        answer = verdict_label(Verdict(outcome="scored", score=vote.score))
    else:
        answer = "yes" if vote.score > 0 else "no"
    return VoteText(question=vote.question, answer=answer, words=vote.failure or vote.hint or vote.raw)


def _sample(sample: Sample, tokens: TokenTexts, model: str, moved: Sequence[Moved]) -> SampleTold:
    texts = tokens.texts(sample.response_ids, model)
    told = [
        TokenTold(
            text=text,
            way=_way(sample, at),
            before=moved[at].before if moved else None,
            after=moved[at].after if moved else None,
        )
        for at, text in enumerate(texts)
    ]
    return SampleTold(id=sample.id, kind=sample.kind, reward=sample.reward, text="".join(texts), tokens=tuple(told))


def _way(sample: Sample, at: int) -> TokenWay:
    """Green, red or blue, as commands colour it."""
    if not sample.loss_mask[at]:
        return "none"
    if advantage := sample.advantages[at] * sample.w_rl:
        return "up" if advantage > 0 else "down"
    return "hint"


def _uses(trace: TurnTrace, history: LineHistory) -> tuple[UseText, ...]:
    lesson = Lesson(line=history.line, turn=(trace.session.id, trace.turn.index))
    versions, steps = list(history.versions.values()), list(history.steps.values())
    return tuple(
        UseText(
            step=use.step.number,
            version=None if use.version is None else use.version.label,
            state=use.state,
            is_replay=use.is_replay,
            answers=use.is_in_live,
        )
        for use in uses(lesson, versions, steps, live=history.answering)
    )

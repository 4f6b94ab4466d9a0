"""From a sentence to the tokens that it moved, and back: what a version learned from, and what became of a turn.

    sentence -> votes and hint -> tokens, each with its probability before and after -> version, gate and state

Only an engine can tell probabilities: whoever asks brings them as `Scores`, or does without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import (
    Json,
    Lesson,
    Session,
    Step,
    Version,
    ancestry,
    line_of,
    split_turn_id,
    turn_id,
    turn_of_sample,
)
from openclaw_rl.views.lessons import LessonView, read_lessons
from openclaw_rl.views.sessions import find_session
from openclaw_rl.views.tokens import TokenTexts
from openclaw_rl.views.versions import StepView, VersionView, find_version, live_number

NUM_MOVED = 8
"""How many tokens are named, those that moved most."""

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""By sample: the log-probs `before` and `after`."""
Scorer = Callable[[Version, Sequence[str]], Scores]


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
class Taught:
    """A sample that a version learned from; `lesson` None: its turn is gone, or was undone."""

    sample: str
    is_replayed: bool
    lesson: LessonView | None
    moved: tuple[Moved, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "sample": self.sample,
            "replayed": self.is_replayed,
            "lesson": None if self.lesson is None else self.lesson.to_json(),
            "moved": [one.to_json() for one in self.moved],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyVersion:
    view: VersionView
    lessons: tuple[Taught, ...]

    def to_json(self) -> dict[str, Json]:
        return {**self.view.to_json(), "lessons": [one.to_json() for one in self.lessons]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Use(StepView):
    """A step that learned from a turn."""

    is_replay: bool
    is_in_live: bool

    def to_json(self) -> dict[str, Json]:
        version = self.version
        return {
            "step": self.step.number,
            "state": self.step.state,
            "replayed": self.is_replay,
            "version": None if version is None else version.label,
            "version_state": None if version is None else version.state,
            "reason": self.step.reason if version is None else version.reason,
            "in_live": self.is_in_live,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyTurn:
    """`moved` by sample."""

    lesson: LessonView
    uses: tuple[Use, ...]
    moved: Mapping[str, tuple[Moved, ...]]

    def to_json(self) -> dict[str, Json]:
        moved = {name: [one.to_json() for one in tokens] for name, tokens in self.moved.items()}
        return {**self.lesson.to_json(), "uses": [use.to_json() for use in self.uses], "moved": moved}


def read_why(
    rows: ReadStore, name: str, *, user: str | None, tokens: TokenTexts, score: Scorer
) -> WhyVersion | WhyTurn:
    """What a version learned from, or what became of a turn."""
    found = _turn_named(rows, name) or _version_or_turn(rows, name, user=user)
    if isinstance(found, VersionView):
        return _of_version(rows, found, tokens, score)
    return _of_turn(rows, *found, tokens, score)


def _turn_named(rows: ReadStore, name: str) -> tuple[Session, int] | None:
    """The turn of exactly this name; a client may call a session 42, or v3."""
    with suppress(ValueError):
        of_turn, index = split_turn_id(name)
        if (session := rows.session(of_turn)) and rows.turn(of_turn, index):
            return session, index
    return None


def _version_or_turn(rows: ReadStore, name: str, *, user: str | None) -> VersionView | tuple[Session, int]:
    """A number alone is a version; what else is none may be the start of a session and an index."""
    try:
        return find_version(rows, name, user=user)
    except NotFound as no_version:
        if name.removeprefix("v").isdigit():
            raise
        try:
            session, index = find_session(rows, name)
        except NotFound as error:
            raise NotFound(f"{no_version}; and {error}") from None
    if index is None:
        raise NotFound(f"{name} is a session; name one of its turns, such as {turn_id(session.id, 0)}")
    return session, index


def _of_version(rows: ReadStore, view: VersionView, tokens: TokenTexts, score: Scorer) -> WhyVersion:
    names = (*view.step.sample_ids, *view.step.replayed_ids)
    scores = score(view.version, names)
    lessons = []
    for name in names:
        lesson = _lesson_of(rows, name)
        moved = () if lesson is None else _moved(lesson, name, tokens, scores)
        replayed = name in view.step.replayed_ids
        lessons.append(Taught(sample=name, is_replayed=replayed, lesson=lesson, moved=moved))
    return WhyVersion(view=view, lessons=tuple(lessons))


def _of_turn(rows: ReadStore, session: Session, index: int, tokens: TokenTexts, score: Scorer) -> WhyTurn:
    line = line_of(session)
    (lesson,) = read_lessons(rows, session.id, index)
    used = uses(
        Lesson(line=line, turn=(session.id, index)),
        rows.versions(line, every_model=True),
        rows.steps(line),
        live=live_number(rows, line),
    )
    names = [sample.id for sample in lesson.samples]
    first = next((one.version for one in used if one.version is not None), None)
    scores = {} if first is None else score(first, names)
    moved = {name: _moved(lesson, name, tokens, scores) for name in names}
    return WhyTurn(lesson=lesson, uses=tuple(used), moved=moved)


def _lesson_of(rows: ReadStore, sample_id: str) -> LessonView | None:
    try:
        (lesson,) = read_lessons(rows, *turn_of_sample(sample_id))
    except (ValueError, NotFound):
        return None
    return lesson if any(sample.id == sample_id for sample in lesson.samples) else None


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


def _moved(lesson: LessonView, name: str, tokens: TokenTexts, scores: Scores) -> tuple[Moved, ...]:
    """Nothing where no engine told the probabilities."""
    sample = next((one for one in lesson.samples if one.id == name), None)
    if sample is None or name not in scores:
        return ()
    return moved_tokens(tokens.texts(sample.response_ids, lesson.record.turn.model), scores[name])


def moved_tokens(texts: Sequence[str], scores: Mapping[str, Sequence[float]]) -> tuple[Moved, ...]:
    """Every token of a response with both its probabilities."""
    both = zip(texts, scores["before"], scores["after"], strict=True)
    return tuple(
        Moved(index=index, text=text, before=math.exp(before), after=math.exp(after))
        for index, (text, before, after) in enumerate(both)
    )


def most_moved(moved: Sequence[Moved]) -> list[Moved]:
    """Those whose probability changed most, in the order of the response."""
    chosen = sorted(moved, key=lambda one: abs(one.after - one.before), reverse=True)[:NUM_MOVED]
    return sorted((one for one in chosen if one.after != one.before), key=lambda one: one.index)

"""Lessons: sentence -> verdict -> hint -> tokens -> demonstration -> version; and what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openclaw_rl.views.page.conversations import SaidText
from openclaw_rl.views.page.corrections import Correction, CorrectionState

VerdictKind = Literal["good", "neutral", "bad", "abstained", "failed", "unjudged"]
Action = Literal["accept", "reject", "hint", "undo", "forget"]
TokenWay = Literal["up", "down", "hint", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonRow:
    turn: str
    session: str
    user: str
    at: float
    """When the sentence came."""
    sentence: str
    """The beginning of what was said."""
    language: str
    """Such as en or zh; `other` where it is none that is told apart, empty where there are no words."""
    verdict: str | None
    kind: VerdictKind
    """The verdict as a filter names it."""
    judge: str
    """Who decided, in words; empty while nobody has judged."""
    hint: str
    """The one that is learned, or the first; empty where there is none."""
    state: CorrectionState
    words: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonFilter:
    """What a list is to hold; None is anything."""

    language: str | None = None
    verdict: str | None = None
    state: str | None = None

    @property
    def is_empty(self) -> bool:
        return (self.language, self.verdict, self.state) == (None, None, None)

    def wants(self, row: LessonRow) -> bool:
        asked = ((self.language, row.language), (self.verdict, row.kind), (self.state, row.state))
        return all(wish in (None, found) for wish, found in asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonPage:
    items: tuple[LessonRow, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteText:
    question: Literal["score", "hint", "claim"]
    answer: str
    """+1, 0, −1 or failed; yes or no for the other questions."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTold:
    """One token of the answer, and which way it is moved: up is green, down red, hint blue; none is not trained."""

    text: str
    way: TokenWay
    before: float | None
    """Its probability, 0 to 1; null where no engine has told it."""
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTold:
    """One sample of a lesson: the answer itself, a demonstration of the wish, or an accepted rewrite."""

    id: str
    kind: Literal["turn", "rewrite", "demonstration", "anchor", "exercise"]
    reward: float
    text: str
    tokens: tuple[TokenTold, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseText:
    """A step that learned from the turn."""

    step: int
    version: str | None
    state: str
    is_replay: bool
    answers: bool
    """Whether it is part of what answers now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonDetail:
    row: LessonRow
    asked: tuple[SaidText, ...]
    answer: SaidText
    followed: tuple[SaidText, ...]
    """What came after the answer."""
    correction: Correction
    reason: str
    """The judge's words."""
    judged_by: str
    """The judge's name and version."""
    votes: tuple[VoteText, ...]
    hints: tuple[str, ...]
    samples: tuple[SampleTold, ...]
    uses: tuple[UseText, ...]
    probabilities: str
    """Empty where the tokens have them, else why not; /tokens asks the engine."""
    actions: tuple[Action, ...]
    """What can be done about it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonTokens:
    """The tokens of all samples of a lesson with their probabilities before and after its version."""

    turn: str
    version: str | None
    samples: tuple[SampleTold, ...]
    probabilities: str
    """Empty, or why there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HintBody:
    """The owner's own sentence in place of the hint."""

    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneText:
    """What an undo or a reject came to."""

    words: str
    answered: str
    answers: str
    undone: tuple[str, ...]

"""A person with a hidden preference: question and reply -> what they say next, and how well the reply meets it.

The preference shows in the reactions only, never in the first message, and in words that differ, as people's do. Four
users are shipped. One of your own is a file of a few lines, named by import path (`demo --user my_users:Polite`,
`eval --preference my_users.py:Polite`):

    class Polite(Person):
        name = "polite"
        preference = "The reply says please."
        complaints = ("Please say please.", "Be more polite: say please.")

        def style(self, question: Question, reply: str) -> float:
            return 1.0 if "please" in reply.lower() else 0.0

`Person` gives it reactions, scores and seeds; a class without it needs only what `SimulatedUser` asks for, and takes
`seed`. Complaints should say what is wanted instead, each of them: that sentence becomes the hint.

    score = answered * style, both in [0, 1]
    answered = on topic * substance * (1 - repetition beyond the usual), and 0 for a refusal and for a question back

so silence, one word, an echo, a loop and something else altogether are worth nothing, however short or plain. Whether
a reply is true is not a user's matter: evaluation/capability.py and `is_correct` measure it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Literal, Protocol, runtime_checkable

from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.questions import KINDS, Kind, Question
from openclaw_rl.plugins import load_named

ReactionKind = Literal["content", "style", "silent", "evasive", "off_topic", "repeats"]
"""`content` is thanks; `style` a complaint about the preference alone; the others say what else is wrong as well."""

THANKS = (
    "Perfect, thanks!",
    "Great, thank you!",
    "Thanks, that's perfect.",
    "That's exactly what I needed, thanks.",
    "Lovely, thanks a lot!",
    "Nice, thank you very much!",
    "That's great, thanks!",
    "Exactly right, thank you.",
)
FAULTS: dict[ReactionKind, tuple[str, ...]] = {
    "silent": ("You didn't answer.", "That was no answer at all.", "That's not an answer.", "Your reply is empty."),
    "evasive": (
        "You didn't answer my question.",
        "That doesn't help me.",
        "That's not an answer.",
        "That's no use to me.",
    ),
    "off_topic": (
        "That's not what I asked.",
        "That has nothing to do with my question.",
        "That is off topic.",
        "No, that's not my question.",
    ),
    "repeats": (
        "You keep saying the same thing.",
        "That repeats itself.",
        "You said the same thing again and again.",
        "That's the same words over and over.",
    ),
}
"""What is wrong besides the preference; the wish of the user follows, so that each complaint says what is wanted."""

_USUAL_REPETITION = 0.1
_FULL_REPETITION = 0.5
_TOO_LITTLE = 0.5
"""Of substance: a bare figure, or one word that the question did not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What the user says next, and why. A user who is `done` says this and leaves."""

    kind: ReactionKind
    message: str
    done: bool = False

    @property
    def is_content(self) -> bool:
        return self.kind == "content"


@runtime_checkable
class SimulatedUser(Protocol):
    """`preference` is for people who watch; nobody tells it to the model. `turn` counts replies from 0."""

    name: str
    preference: str

    def react(self, question: Question, reply: str, turn: int) -> Reaction: ...

    def score(self, question: Question, reply: str) -> float: ...


def score_of(user: SimulatedUser, question: Question, reply: str) -> float:
    """What the user gives; `ConfigError` where the code of others gives no number in [0, 1]."""
    return _checked(f"{type(user).__name__}.score", lambda: user.score(question, reply))


def _checked(named: str, give: Callable[[], object]) -> float:
    try:
        given = give()
        value = float(given) if isinstance(given, Real) else math.nan
    except ConfigError:
        raise
    except Exception as error:  # code of others may raise anything
        raise ConfigError(f"{named} failed: {error!r}") from error
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{named} must be a number in [0, 1], got {given!r}")
    return value


def answered(asked: str, reply: str) -> float:
    """How far a reply is an answer to what was asked at all, in [0, 1]; see the module."""
    if detectors.refuses(reply) or detectors.asks_back(reply):
        return 0.0
    return detectors.on_topic(asked, reply) * detectors.substance(asked, reply) * _freshness(reply)


def _freshness(reply: str) -> float:
    """1 up to the usual repetition of prose, down to 0 where half of all three-grams were there before."""
    beyond = (detectors.repetition(reply) - _USUAL_REPETITION) / (_FULL_REPETITION - _USUAL_REPETITION)
    return min(1.0, max(0.0, 1.0 - beyond))


class Person:
    """A `SimulatedUser` that wants one thing. Subclasses name it, word it, and measure it with `style`."""

    name: str
    preference: str
    complaints: tuple[str, ...]
    """Each says what the user wants, and nothing of the question."""
    wish: str = ""
    """One sentence that follows a complaint about something else; the first complaint where there is none."""
    kinds: tuple[Kind, ...] = KINDS
    """The kinds of questions that the user asks."""
    short_kinds: tuple[Kind, ...] = ("open", "sum")
    """Those that are asked where there are minutes only: the untouched SmolLM2 ends its answers to them within 256
    tokens (of 28 held-out ones all, but half of the how-tos and writing requests), and of what is cut only the hint is
    learned."""
    content_from: float = 0.7
    """The style from which on the user is content."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed

    def style(self, question: Question, reply: str) -> float:
        """How well a reply that is an answer meets the preference, in [0, 1]."""
        raise NotImplementedError

    def score(self, question: Question, reply: str) -> float:
        """How well a reply meets the preference, in [0, 1]; 0 for what is no answer."""
        return answered(question.text, self.core(reply)) * self._checked_style(question, reply)

    def core(self, reply: str) -> str:
        """What of a reply has to be the answer: all of it, unless the preference is for something beside it."""
        return reply

    def react(self, question: Question, reply: str, turn: int) -> Reaction:
        """Thanks, or a complaint; the same for the same question, reply, turn and seed."""
        kind = self._kind(question, reply)
        if kind == "content":
            return Reaction(kind=kind, message=self._pick(THANKS, question, turn), done=True)
        if kind == "style":
            return Reaction(kind=kind, message=self._pick(self.complaints, question, turn))
        fault = self._pick(FAULTS[kind], question, turn)
        return Reaction(kind=kind, message=f"{fault} {self.wish or self.complaints[0]}")

    def _kind(self, question: Question, reply: str) -> ReactionKind:
        if not detectors.words(reply):
            return "silent"
        if _freshness(reply) < 0.5:
            return "repeats"
        if detectors.refuses(reply) or detectors.asks_back(reply):
            return "evasive"
        if not detectors.on_topic(question.text, self.core(reply)):
            return "off_topic"
        if detectors.substance(question.text, self.core(reply)) <= _TOO_LITTLE:
            return "evasive"
        return "content" if self._checked_style(question, reply) >= self.content_from else "style"

    def _checked_style(self, question: Question, reply: str) -> float:
        return _checked(f"{type(self).__name__}.style", lambda: self.style(question, reply))

    def _pick(self, wordings: tuple[str, ...], question: Question, turn: int) -> str:
        """One of them, by the question and the seed; no wording twice in a session before all were used."""
        order = random.Random(f"{self._seed}/{self.name}/{question.text}").sample(wordings, len(wordings))
        return order[turn % len(order)]


class Brief(Person):
    """style = min(1, 25 / words) * 2 / (1 + sentences), and * 0.7 where the sentence does not come to its end.

    One whole sentence of at most 25 words is 1; two of 25 words together 0.67; five of 80 words 0.10.
    """

    name = "brief"
    preference = "One short sentence is enough."
    complaints = (
        "Too long. Answer in one short sentence.",
        "Please answer in one short sentence.",
        "Can you say that in one short sentence?",
        "Keep it to one short sentence, please.",
        "Make it one short sentence.",
        "Hmm, way too long. Please reply in one short sentence.",
        "No, I want one short sentence, not an essay.",
        "Shorter please. Answer in one short sentence.",
        "That's a wall of text. Put it in one short sentence.",
    )
    wish = "Answer my question in one short sentence."
    max_words = 25

    def style(self, question: Question, reply: str) -> float:
        num_words = len(detectors.words(reply))
        num_sentences = max(1, len(detectors.sentences(reply)))  # code has words and no sentence
        if not num_words:
            return 0.0
        ends = detectors.visible(reply).rstrip("\"'”’)*_ ").endswith((".", "!", "?", "…", "。"))
        return min(1.0, self.max_words / num_words) * 2 / (1 + num_sentences) * (1.0 if ends else 0.7)


class Plain(Person):
    """style = 2 / (2 + marks), where marks are bold pieces, list items, headings and tables. Content with none only."""

    name = "plain"
    preference = "Plain sentences: no lists, no bold."
    complaints = (
        "Please don't use lists or bold, write plain sentences.",
        "Write it in plain sentences, without lists or bold.",
        "Please write it without bullet points and bold, in plain sentences.",
        "Can you write that in plain sentences, without lists and bold?",
        "Please rewrite it as plain text without lists, headings or bold.",
        "I don't want lists or bold text. Use plain sentences.",
        "Drop the formatting: no lists, no bold, only plain sentences.",
        "This looks like a slide deck. Answer in plain sentences, without lists or bold.",
    )
    wish = "Answer my question in plain sentences, without lists or bold."
    short_kinds = ("open", "how_to")
    content_from = 1.0

    def style(self, question: Question, reply: str) -> float:
        return 2 / (2 + detectors.markup(reply).total)


class Friendly(Person):
    """style = 0, 0.7 and 1 for none, one, and two or more different friendly things said.

    They make no answer by themselves: without them the reply must still be one.
    """

    name = "friendly"
    preference = "A warm and friendly tone."
    complaints = (
        "That sounds cold. Write in a warm, friendly tone.",
        "Please answer in a friendly, encouraging tone.",
        "Too formal. Answer in a friendly and warm tone please.",
        "You sound like a robot. Be warm and friendly with me.",
        "Please be friendlier, use a warm and friendly tone.",
        "Can you say that in a friendlier tone?",
        "Make it friendlier, talk to me like a friend would.",
        "A bit stiff. Use a friendly tone and an encouraging word.",
    )
    wish = "Answer my question in a warm, friendly tone."

    def style(self, question: Question, reply: str) -> float:
        return (0.0, 0.7, 1.0)[min(2, len(detectors.friendly(reply)))]

    def core(self, reply: str) -> str:
        return detectors.without_friendly(reply)


class Steps(Person):
    """style = min(1, steps / 3), where a step is a numbered one, one led in by first / then / so, or a calculation."""

    name = "steps"
    preference = "Always show the steps."
    complaints = (
        "Show the steps one by one, please.",
        "Please show every step.",
        "Explain it step by step please.",
        "How did you get there? Show every step.",
        "Don't just give me the result, show all the steps.",
        "I want to see the steps. Show the steps one by one.",
        "You skipped the steps.",
        "Can you explain that step by step?",
    )
    wish = "Answer my question step by step."
    kinds = ("open", "how_to", "sum")
    content_from = 0.6

    def style(self, question: Question, reply: str) -> float:
        return min(1.0, detectors.steps(reply) / 3)


USERS: dict[str, Callable[..., SimulatedUser]] = {kind.name: kind for kind in (Brief, Plain, Friendly, Steps)}


def questions_for(user: SimulatedUser, questions: Iterable[Question]) -> tuple[Question, ...]:
    """Those that the user would ask: of the kinds in `user.kinds`, or all of them where it has none."""
    kinds = getattr(user, "kinds", KINDS)
    return tuple(question for question in questions if question.kind in kinds)


def load_user(name_or_path: str, *, seed: int = 0) -> SimulatedUser:
    """A shipped user by name, or anybody's by import path."""
    if ":" not in name_or_path:
        if name_or_path not in USERS:
            raise ConfigError(
                f"there is no user {name_or_path!r}; one of {', '.join(USERS)}, or module:Class or file.py:Class"
            )
        return USERS[name_or_path](seed=seed)
    _, made_by = load_named(name_or_path, "the user")
    try:
        user = made_by(seed=seed)
    except Exception as error:  # code of others may raise anything
        raise ConfigError(f"the user {name_or_path} cannot be made with seed={seed}: {error!r}") from error
    if not isinstance(user, SimulatedUser):
        raise ConfigError(f"the user {name_or_path} is none: it needs name, preference, react and score")
    for name in ("kinds", "short_kinds"):
        kinds: object = getattr(user, name, KINDS)
        if not (isinstance(kinds, Collection) and kinds and all(kind in KINDS for kind in kinds)):
            raise ConfigError(f"the user {name_or_path}: {name} must be a tuple of {', '.join(KINDS)}, got {kinds!r}")
    return user

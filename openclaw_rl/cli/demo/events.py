"""What happens in a demo, as whoever shows it is told; and what finds it in the store. Turns are counted from 1."""

from __future__ import annotations

from dataclasses import dataclass, field

from openclaw_rl.evaluation.exam import Examination
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Json, Step, Verdict, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAsked:
    turn: int
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAnswered:
    turn: int
    version: str
    text: str
    num_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reacted:
    """What the user said to the answer, and how well it met the hidden preference."""

    turn: int
    message: str
    is_content: bool
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJudged:
    turn: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A turn that is not learned from."""

    turn: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A step ended, or began (`planned`); `turns` are those that it learns from."""

    step: Step
    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A version came up, or has another state than before."""

    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A version on held-out questions. `num_lessons` are the turns that it learned from."""

    number: int
    label: str
    num_lessons: int
    preference: Interval
    tokens: float
    on_topic: float
    capability: Interval | None
    num_items: int
    examination: Examination

    def to_json(self) -> dict[str, Json]:
        return {
            "version": self.label,
            "lessons": self.num_lessons,
            "preference": self.preference.to_json(),
            "tokens": self.tokens,
            "on_topic": self.on_topic,
            "capability": None if self.capability is None else self.capability.to_json(),
            "capability_items": self.num_items,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What is waited for, and how far it is; an empty text when it is over."""

    text: str
    done: int = 0
    total: int = 0


Event = DemoAsked | DemoAnswered | Reacted | DemoJudged | Left | Stepped | Changed | Measured | Doing


@dataclass(slots=True)
class Watcher:
    """What has become of the turns of one line. A turn is settled when a step has learned from it, or none will.

    Looks again and again; blocking.
    """

    rows: ReadStore
    line: str
    turns: dict[str, int] = field(default_factory=dict)
    """The number of the turn by its session: each session has one that is judged."""
    versions: dict[int, Version] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    _judged: dict[str, float] = field(default_factory=dict)
    _samples: dict[str, int] = field(default_factory=dict)
    _settled: set[int] = field(default_factory=set)

    def add(self, session: str, turn: int) -> None:
        self.turns[session] = turn

    @property
    def live(self) -> int:
        """The version that answers; 0 is the base model."""
        return next((number for number, version in self.versions.items() if version.state == "live"), 0)

    @property
    def num_unsettled(self) -> int:
        return len(self.turns) - len(self._settled)

    @property
    def num_waiting(self) -> int:
        """Turns that are neither settled nor in a step that is being taken."""
        taken = [one for step in self.steps.values() if step.state == "planned" for one in step.sample_ids]
        return self.num_unsettled - len({self._samples[one] for one in taken if one in self._samples})

    @property
    def is_judged(self) -> bool:
        return len(self._judged) == len(self.turns)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing more will come of what was said so far."""
        waits = any(step.state == "planned" for step in self.steps.values())
        undecided = any(version.state == "candidate" for version in self.versions.values())
        return not (self.num_unsettled or waits or undecided)

    def num_lessons(self, number: int) -> int:
        """The turns that a version learned from, in all steps on the way to it."""
        count = 0
        while number in self.versions and number in self.steps:
            count += len(self.steps[number].sample_ids)
            number = self.versions[number].parent
        return count

    def look(self) -> list[Event]:
        """What is new."""
        return [*self._look_at_turns(), *self._look_at_steps(), *self._look_at_versions()]

    def _look_at_turns(self) -> list[Event]:
        found: list[Event] = []
        for session, turn in list(self.turns.items()):
            if turn in self._settled or turn in self._samples.values():
                continue
            for judgement in self.rows.judgements(session):
                if judgement.index == 0 and self._judged.get(session) != judgement.judged_at:
                    self._judged[session] = judgement.judged_at
                    found.append(DemoJudged(turn=turn, verdict=judgement.verdict))
            for credit in self.rows.credits(session):
                if credit.index == 0 and credit.skip is not None:
                    self._settled.add(turn)
                    found.append(Left(turn=turn, reason=credit.skip.value.replace("_", " ")))
                self._samples |= {sample.id: turn for sample in credit.samples}
        return found

    def _look_at_steps(self) -> list[Event]:
        found: list[Event] = []
        for step in self.rows.steps(self.line):
            known = self.steps.get(step.number)
            if known is not None and known.state == step.state:
                continue
            self.steps[step.number] = step
            turns = sorted({self._samples[one] for one in step.sample_ids if one in self._samples})
            found.append(Stepped(step=step, turns=tuple(turns)))
        # Of all of them: a step may be seen before the sample that it learned from.
        done = [one for step in self.steps.values() if step.state == "done" for one in step.sample_ids]
        self._settled.update(self._samples[one] for one in done if one in self._samples)
        return found

    def _look_at_versions(self) -> list[Event]:
        found: list[Event] = []
        for version in self.rows.versions(self.line):
            known = self.versions.get(version.number)
            self.versions[version.number] = version
            if known is None or known.state != version.state:
                found.append(Changed(version=version))
        return found

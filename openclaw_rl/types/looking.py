"""As much of what is stored as a list of it shows: without token ids, and without what a conversation repeats."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.types.learning import Judgement, SampleKind
from openclaw_rl.types.messages import Message
from openclaw_rl.types.turns import Feedback, FinishReason, NextState, Session, Skip, TurnKind, turn_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnGlimpse:
    """A turn as people see it. `asked` is what its request says that its parent's conversation does not hold."""

    session: str
    index: int
    parent: int | None
    kind: TurnKind
    skip: Skip | None
    finish_reason: FinishReason
    created_at: float
    finished_at: float
    num_sampled: int
    model: str
    versions: tuple[str, ...]
    asked: tuple[Message, ...]
    answer: Message

    @property
    def id(self) -> str:
        return turn_id(self.session, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditMark:
    """What a judgement came to, without its samples."""

    credited_at: float
    reward: float | None
    skip: Skip | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMark:
    """A sample by its name, and the step that has it; None: it waits."""

    id: str
    line: str
    kind: SampleKind
    created_at: float
    step: int | None
    num_discarded: int
    is_returned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTrace:
    """What was said about one turn, and everything that became of it."""

    session: Session
    turn: TurnGlimpse
    next_state: NextState | None
    feedback: tuple[Feedback, ...]
    is_unjudged: bool
    """The judge has something of it still to read."""
    is_uncredited: bool
    judgement: Judgement | None
    credit: CreditMark | None
    samples: tuple[SampleMark, ...]

    @property
    def is_heard(self) -> bool:
        return self.next_state is not None or bool(self.feedback)

    @property
    def heard_at(self) -> float:
        """When the last of it came."""
        times = [one.given_at for one in self.feedback]
        return max([*times, *([] if self.next_state is None else [self.next_state.arrived_at])], default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardPlace:
    """A turn that something was said about, and when the last of it came."""

    at: float
    session: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTally:
    """What waits for a stage, since when, and how much went through it lately."""

    num_waiting: int
    since: float | None
    num_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTally:
    """The attempts of one environment; `reward` is the mean of the newest that ended with one."""

    environment: str
    num_episodes: int
    num_failed: int
    reward: float | None
    last_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCounts:
    """How much is stored of a user."""

    num_sessions: int
    num_turns: int
    num_versions: int
    """Those whose weights are there."""

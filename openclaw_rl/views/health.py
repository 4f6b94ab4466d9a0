"""How it stands: what waits and what is paused, from the store; and what `doctor` finds that a start depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import JUDGING_PAUSED, TRAINING_PAUSED, Json

State = Literal["ok", "remark", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """`paused` is the reason why nothing is judged at the moment, `training_paused` why nothing is trained, if any."""

    paused: str | None
    num_unjudged: int
    num_uncredited: int
    training_paused: str | None = None

    @property
    def waiting(self) -> str:
        """In words; nothing if nothing waits."""
        counts = ((self.num_unjudged, "the judge"), (self.num_uncredited, "credit"))
        parts = [f"{count} for {what}" for count, what in counts if count]
        return f"Turns that wait: {', '.join(parts)}" if parts else ""

    def to_json(self) -> dict[str, Json]:
        return {
            "paused": self.paused,
            "training_paused": self.training_paused,
            "unjudged": self.num_unjudged,
            "uncredited": self.num_uncredited,
        }


def read_backlog(rows: ReadStore) -> Backlog:
    """As it is now."""
    return Backlog(
        paused=rows.flag(JUDGING_PAUSED),
        num_unjudged=rows.num_open("judge"),
        num_uncredited=rows.num_open("credit"),
        training_paused=rows.flag(TRAINING_PAUSED),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """How many turns were judged lately, by whom, and why some of them got no score, by how often."""

    num_judged: int
    reasons: Mapping[str, int]
    judges: Mapping[str, int] = field(default_factory=dict)


def read_unscored(rows: ReadStore, *, num_sessions: int = 20) -> Unscored:
    """Of the sessions seen last."""
    sessions = rows.sessions()[:num_sessions]
    judgements = [judgement for each in sessions for judgement in rows.judgements(each.session.id)]
    reasons = Counter(one.verdict.reason for one in judgements if one.verdict.score is None)
    judges = Counter(one.judge for one in judgements)
    return Unscored(num_judged=len(judgements), reasons=dict(reasons.most_common()), judges=dict(judges.most_common()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at. `remedy` says what to do about it."""

    name: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    checks: Sequence[CheckResult]

    @property
    def num_broken(self) -> int:
        return sum(check.state == "broken" for check in self.checks)

    def to_json(self) -> dict[str, Json]:
        """`ok` is false if anything is broken."""
        return {"ok": not self.num_broken, "checks": [asdict(check) for check in self.checks]}

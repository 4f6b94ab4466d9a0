"""How it stands: what waits and what is paused, from the store; and what `doctor` finds that a start depends on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Literal

from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import JUDGING_PAUSED, NOT_ASKED, TRAINING_PAUSED, Json, Judgement

_SURE = re.compile(r"heads: [+-]?\d at (\d\.\d\d)(?! only)")
"""How the heads begin the reason of a verdict of theirs."""

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
    """How many turns were judged lately, by whom, and why some of them got no score, by how often.

    `sureness` is that of the heads where they decided, the mean; None where they did not. `missing` names the judge
    that should have given the newest verdict, and why it did not; empty where it did.
    """

    num_judged: int
    reasons: Mapping[str, int]
    judges: Mapping[str, int] = field(default_factory=dict)
    sureness: float | None = None
    missing: str = ""


def read_unscored(rows: ReadStore, *, num_sessions: int = 20) -> Unscored:
    """Of the sessions seen last."""
    sessions = rows.session_part(None, after=None, limit=num_sessions)
    return unscored_of([judgement for each in sessions for judgement in rows.judgements(each.session.id)])


def unscored_of(judgements: Sequence[Judgement]) -> Unscored:
    """The same of these."""
    reasons = Counter(_told(one)[0] for one in judgements if one.verdict.score is None)
    judges = Counter(decided_by(one) for one in judgements)
    sure = [float(found[1]) for one in judgements if (found := _SURE.match(one.verdict.reason))]
    newest = max(judgements, key=lambda one: one.judged_at, default=None)
    return Unscored(
        num_judged=len(judgements),
        reasons=dict(reasons.most_common()),
        judges=dict(judges.most_common()),
        sureness=fmean(sure) if sure else None,
        missing="" if newest is None else _told(newest)[1],
    )


def decided_by(judgement: Judgement) -> str:
    """Whose verdict it is: of a judge made of several, the one that its reason begins with."""
    first = judgement.verdict.reason.partition(":")[0]
    named = {"finding": "findings", "explicit feedback": "the person", "heads": "heads", "n-grams": "n-grams"}
    return {**named, "rules": "rules"}.get(first, judgement.judge)


def _told(judgement: Judgement) -> tuple[str, str]:
    """Why the verdict is what it is, and why it is not another judge's."""
    reason, _, missing = judgement.verdict.reason.partition(NOT_ASKED)
    return reason, missing


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

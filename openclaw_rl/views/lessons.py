"""A turn, what followed it, what the judge made of that, and the samples that came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from openclaw_rl.errors import NotFound
from openclaw_rl.gateway.api.rollouts import turn_json
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Credit, Json, Judgement, Sample, TurnRecord, Verdict, turn_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonView:
    """A turn and what became of it; None is what is not there yet."""

    record: TurnRecord
    judgement: Judgement | None
    credit: Credit | None

    @property
    def samples(self) -> tuple[Sample, ...]:
        return () if self.credit is None else tuple(self.credit.samples)

    def to_json(self) -> dict[str, Json]:
        judgement, credit = self.judgement, self.credit
        return {
            **turn_json(self.record),
            "judgement": None if judgement is None else judgement_json(judgement),
            "credit": None if credit is None else _credit_json(credit),
            "samples": [sample_json(sample) for sample in self.samples],
        }


def read_lessons(rows: ReadStore, session: str, index: int | None = None) -> list[LessonView]:
    """All turns of a session with what became of them, or the one at `index`."""
    records = [record for record in rows.records(session) if index in (None, record.turn.index)]
    if index is not None and not records:
        raise NotFound(f"there is no turn {turn_id(session, index)}; `openclaw-rl inspect {session}` shows all")
    judgements = {judgement.index: judgement for judgement in rows.judgements(session)}
    came_to = {credit.index: credit for credit in rows.credits(session)}
    return [
        LessonView(record=one, judgement=judgements.get(one.turn.index), credit=came_to.get(one.turn.index))
        for one in records
    ]


def verdict_label(verdict: Verdict) -> str:
    """The four things a judge can come to, each by its own name."""
    return signed(verdict.reward) if verdict.reward is not None else verdict.outcome


def score_label(verdict: Verdict) -> str:
    """The same with the score alone, +1, 0 or −1: judges that give other numbers are compared by it."""
    return signed(verdict.score) if verdict.score is not None else verdict.outcome


def signed(value: float) -> str:
    """A score or advantage with its sign, and a zero without.

    >>> signed(-1), signed(0.0), signed(0.8)
    ('−1', '0', '+0.8')
    """
    number = f"{abs(value):.2f}".rstrip("0").rstrip(".") or "0"
    return number if number == "0" else f"{'−' if value < 0 else '+'}{number}"


def judgement_json(judgement: Judgement) -> dict[str, Json]:
    """A stored judgement with every vote."""
    return {
        "judge": judgement.judge,
        "prompt_version": judgement.prompt_version,
        "judged_at": judgement.judged_at,
        "num_evidence": judgement.num_evidence,
        **verdict_json(judgement.verdict),
    }


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """`score` is null unless the outcome is `scored`."""
    return {
        "outcome": verdict.outcome,
        "score": verdict.score,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "hints": list(verdict.hints),
        "votes": [asdict(vote) for vote in verdict.votes],
    }


def sample_json(sample: Sample) -> dict[str, Json]:
    """A sample, whole: every list but `prompt_ids` and `candidates` has one entry for each response token."""
    return {
        "id": sample.id,
        "line": sample.line,
        "kind": sample.kind,
        "session": sample.session,
        "index": sample.index,
        "prompt_index": sample.prompt_index,
        "created_at": sample.created_at,
        "reward": sample.reward,
        "w_rl": sample.w_rl,
        "w_opd": sample.w_opd,
        "on_policy": sample.on_policy,
        "temperature": sample.temperature,
        "prompt_ids": list(sample.prompt_ids),
        "response_ids": list(sample.response_ids),
        "loss_mask": [int(learned) for learned in sample.loss_mask],
        "advantages": list(sample.advantages),
        "logprobs": None if sample.logprobs is None else list(sample.logprobs),
        "candidates": [
            {"hint": c.hint, "num_shared": c.num_shared, "suffix_ids": list(c.suffix_ids)} for c in sample.candidates
        ],
        "version_spans": [{"version": s.version, "start": s.start, "end": s.end} for s in sample.version_spans],
    }


def _credit_json(credit: Credit) -> dict[str, Json]:
    skip = None if credit.skip is None else credit.skip.value
    return {"rule": credit.rule, "credited_at": credit.credited_at, "reward": credit.reward, "skip": skip}

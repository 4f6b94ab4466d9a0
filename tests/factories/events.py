"""Steps, versions and credits as the loops report them, made by hand."""

from __future__ import annotations

from typing import Any

from openclaw_rl.types import Credit, JudgedTurn, Judgement, Sample, Skip, Step, Verdict, Version, Vote
from tests.factories.samples import sample_of
from tests.factories.turns import make_session, make_turn
from tests.factories.weights import folder_ref

METRICS = {
    "loss/total": 0.41,
    "loss/binary": 0.12,
    "loss/opd": 0.29,
    "reward/mean": -0.5,
    "reward/std": 0.866,
    "gradient/norm": 1.5,
    "learning_rate": 0.0003,
    "policy/age": 0.25,
    "sample/overlap": 3.5,
    "step/seconds": 9.81,
}


def step(number: int = 3, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "line": "local",
        "number": number,
        "state": "done",
        "planned_at": 100.0,
        "finished_at": 110.0,
        "seed": 7,
        "parent": number - 1,
        "sample_ids": ("s-1.0", "s-1.1", "s-2.0"),
        "replayed_ids": ("s-0.4",),
        "metrics": METRICS,
    }
    return Step(**{**values, **changes})


def version(number: int = 3, state: str = "live", **changes: Any) -> Version:
    values: dict[str, Any] = {
        "line": "local",
        "number": number,
        "parent": number - 1,
        "state": state,
        "created_at": 110.0,
        "weights": folder_ref(f"/versions/v{number}/weights", "ab"),
    }
    return Version(**{**values, **changes})


def credited(skip: Skip | None = None, *, hint: str = "Answer in one sentence.") -> tuple[JudgedTurn, Credit]:
    """Ann's turn, judged bad by two votes, and the sample that was made of it unless it was skipped."""
    turn = make_turn(2, text="a secret answer")
    samples: tuple[Sample, ...] = () if skip else (sample_of(turn),)
    verdict = Verdict(
        outcome="scored",
        score=-1,
        reason="quotes what was said",
        votes=(
            Vote(question="score", score=-1, raw="the words of a judge"),
            Vote(question="hint", score=None, failure="no answer"),
        ),
        hints=(hint,),
    )
    judgement = Judgement(
        session=turn.session,
        index=2,
        num_evidence=1,
        judge="rules",
        prompt_version="4",
        judged_at=105.0,
        verdict=verdict,
    )
    judged = JudgedTurn(session=make_session(), turn=turn, judgement=judgement, reward=None, before=None)
    credit = Credit(
        session=turn.session,
        index=2,
        num_evidence=1,
        rule="combine",
        credited_at=106.0,
        reward=-1.0,
        skip=skip,
        samples=samples,
    )
    return judged, credit

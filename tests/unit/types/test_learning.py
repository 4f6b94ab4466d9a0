"""Nouns of learning refuse to be born wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.types import (
    Candidate,
    Credit,
    Evidence,
    Message,
    Sample,
    Score,
    Skip,
    Verdict,
    VersionSpan,
    Vote,
    sample_id,
)

REPLY = Message(role="assistant", content="fine")
SAID = (Message(role="user", content="thanks"),)
SAMPLE = Sample(
    id="s.1",
    line="ann",
    kind="turn",
    session="s",
    index=1,
    prompt_index=1,
    created_at=0.0,
    prompt_ids=(1, 2, 3, 4),
    response_ids=(5, 6),
    loss_mask=(True, True),
    advantages=(0.5, 0.5),
    logprobs=(-1.0, -2.0),
    temperature=0.7,
    on_policy=True,
    reward=1.0,
    w_rl=1.0,
    w_opd=1.0,
    candidates=(Candidate(hint="Be brief.", num_shared=2, suffix_ids=(9, 9, 9)),),
    version_spans=(VersionSpan("v0", 0, 2),),
)


def test_evidence_is_something_that_followed_a_reply() -> None:
    Evidence(request=(), reply=REPLY, following=SAID)
    with pytest.raises(ValueError, match="nothing to judge by"):
        Evidence(request=(), reply=REPLY, following=())
    with pytest.raises(ValueError, match="role assistant"):
        Evidence(request=(), reply=SAID[0], following=SAID)


def test_a_vote_has_a_score_or_a_reason_why_not() -> None:
    Vote(question="score", score=0)
    Vote(question="hint", score=1, hint="Answer briefly.")
    for wrong in (
        {"question": "score", "score": None},
        {"question": "score", "score": 1, "failure": "no marker"},
        {"question": "score", "score": 1, "hint": "Answer briefly."},
        {"question": "hint", "score": 0},
    ):
        with pytest.raises(ValueError, match="vote|question|correction"):
            Vote(**wrong)


def test_failed_tied_and_neutral_are_told_apart() -> None:
    assert Verdict(outcome="scored", score=0).score == 0
    assert Verdict(outcome="abstained", reason="a tie").score is None
    for wrong in ({"outcome": "scored"}, {"outcome": "failed", "score": 1}, {"outcome": "failed"}):
        with pytest.raises(ValueError, match="score|reason"):
            Verdict(**wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"advantages": (0.5,)},
        {"loss_mask": (True,) * 3},
        {"logprobs": ()},
        {"response_ids": ()},
        {"candidates": ()},
        {"candidates": (Candidate(hint="", num_shared=5, suffix_ids=()),)},
    ],
)
def test_a_sample_fits_together(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"entries|tokens|candidate"):
        replace(SAMPLE, **change)  # type: ignore[arg-type]


def test_a_teacher_reads_what_is_shared_and_then_its_own() -> None:
    assert SAMPLE.teacher_prompt(SAMPLE.candidates[0]) == (1, 2, 9, 9, 9)
    assert (sample_id("s", 1, "turn"), sample_id("s", 1, "rewrite")) == ("s.1", "s.1+rewrite")


def test_a_credit_is_samples_or_a_reason() -> None:
    credit = Credit(session="s", index=1, num_evidence=1, rule="combine", credited_at=0.0, samples=(SAMPLE,))
    with pytest.raises(ValueError, match="samples"):
        replace(credit, skip=Skip.NEUTRAL)
    with pytest.raises(ValueError, match="samples"):
        replace(credit, samples=())


@pytest.mark.parametrize(
    ("score", "value", "reward"), [(1, None, 1.0), (-1, -0.2, -0.2), (0, 0.0, 0.0), (None, None, None)]
)
def test_what_a_verdict_is_worth(score: Score | None, value: float | None, reward: float | None) -> None:
    verdict = Verdict(outcome="abstained" if score is None else "scored", score=score, value=value, reason="r")
    assert verdict.reward == reward


@pytest.mark.parametrize(("score", "value"), [(1, -0.2), (0, 0.1), (-1, 0.0), (None, 1.0), (1, float("inf"))])
def test_a_vote_is_the_sign_of_its_value(score: Score | None, value: float) -> None:
    with pytest.raises(ValueError, match="came with score"):
        Verdict(outcome="abstained" if score is None else "scored", score=score, value=value, reason="r")

"""Several judges as one."""

from __future__ import annotations

import pytest

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.chain import Chain
from openclaw_rl.types import Evidence, Verdict, Vote
from tests.unit.judge.talk import talk

PLUS = Verdict(outcome="scored", score=1, votes=(Vote(question="score", score=1, raw="thanks"),))
NEUTRAL = Verdict(outcome="scored", score=0)
ABSTAINED = Verdict(outcome="abstained", reason="nothing to go by")
HINTED = Verdict(outcome="abstained", reason="a tie", hints=("Answer more briefly.",))
FAILED = Verdict(outcome="failed", reason="it is down")


class Fixed:
    def __init__(self, name: str, verdict: Verdict) -> None:
        self.name, self.prompt_version = name, f"{name}-1"
        self.verdict = verdict
        self.num_asked = 0
        self.is_closed = self.has_forgotten = False

    async def judge(self, evidence: Evidence) -> Verdict:
        self.num_asked += 1
        return self.verdict

    def forget(self) -> None:
        self.has_forgotten = True

    async def close(self) -> None:
        self.is_closed = True


def chain(*verdicts: Verdict) -> tuple[Chain, list[Fixed]]:
    judges = [Fixed(name, verdict) for name, verdict in zip(("rules", "endpoint", "self"), verdicts, strict=False)]
    return Chain(judges), judges


@pytest.mark.parametrize(
    ("verdicts", "outcome", "score", "num_asked", "reason"),
    [
        ((PLUS, FAILED), "scored", 1, [1, 0], "rules scored"),
        ((NEUTRAL, PLUS), "scored", 0, [1, 0], "rules scored"),
        ((ABSTAINED, PLUS), "scored", 1, [1, 1], "endpoint scored; rules abstained (nothing to go by)"),
        ((FAILED, PLUS), "scored", 1, [1, 1], "endpoint scored; rules failed (it is down)"),
        ((ABSTAINED, ABSTAINED), "abstained", None, [1, 1],
         "endpoint abstained (nothing to go by); rules abstained (nothing to go by)"),
        ((ABSTAINED, FAILED), "failed", None, [1, 1],
         "endpoint failed (it is down); rules abstained (nothing to go by)"),
        ((FAILED, ABSTAINED), "failed", None, [1, 1],
         "endpoint abstained (nothing to go by); rules failed (it is down)"),
        ((ABSTAINED, FAILED, PLUS), "scored", 1, [1, 1, 1],
         "self scored; endpoint failed (it is down); rules abstained (nothing to go by)"),
    ],
)  # fmt: skip
async def test_the_first_that_scores_decides(
    verdicts: tuple[Verdict, ...], outcome: str, score: int | None, num_asked: list[int], reason: str
) -> None:
    judge, judges = chain(*verdicts)
    verdict = await judge.judge(talk("x"))
    assert (verdict.outcome, verdict.score, verdict.reason) == (outcome, score, reason)
    assert [j.num_asked for j in judges] == num_asked


async def test_the_votes_are_those_of_who_decided() -> None:
    judge, _ = chain(ABSTAINED, PLUS)
    assert (await judge.judge(talk("x"))).votes == PLUS.votes


async def test_hints_of_who_abstained_are_kept() -> None:
    judge, _ = chain(HINTED, PLUS)
    assert (await judge.judge(talk("x"))).hints == HINTED.hints
    judge, _ = chain(HINTED, ABSTAINED)
    assert (await judge.judge(talk("x"))).hints == HINTED.hints


def test_all_of_them_forget() -> None:
    judge, judges = chain(PLUS, PLUS)
    judge.forget()
    assert all(j.has_forgotten for j in judges)


async def test_names_versions_and_closing() -> None:
    judge, judges = chain(PLUS, PLUS)
    assert (judge.name, judge.prompt_version) == ("rules+endpoint", "rules-1+endpoint-1")
    await judge.close()
    assert all(j.is_closed for j in judges)


def test_an_empty_chain_says_so() -> None:
    with pytest.raises(JudgeError, match="at least one judge"):
        Chain([])

"""The known cases, and what a judge makes of them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from openclaw_rl.judge.canaries import Canaries, Canary, CanaryFinding, examine
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.types import Score, Verdict


def _scored(score: Score) -> Verdict:
    return Verdict(outcome="scored", score=score)


SILENT = Verdict(outcome="failed", reason="timeout")
UNSURE = Verdict(outcome="abstained", reason="tie")


def _pairs(num: int) -> list[tuple[Canary, Canary]]:
    canaries = Canaries.shipped()
    return list(islice(iter(canaries.pair, None), num))


def test_there_are_many_of_each_and_each_has_its_turn() -> None:
    pairs = _pairs(20)
    for number, expected in ((0, 1), (1, -1)):
        cases = [pair[number] for pair in pairs]
        assert {case.expected for case in cases} == {expected}
        said = Counter(case.evidence.following[-1].content for case in cases)
        assert len(said) >= 8
        assert max(said.values()) - min(said.values()) <= 1


def test_no_two_are_the_same_question() -> None:
    """A cache that knows the answer to yesterday's would hide that the judge of today lies."""
    asked = [case.evidence.request[-1].content for pair in _pairs(50) for case in pair]
    assert len(set(asked)) == len(asked)


async def test_the_default_judge_gets_all_of_them_right() -> None:
    judge = RulesJudge()
    for pair in _pairs(20):
        for case in pair:
            assert (await judge.judge(case.evidence)).score == case.expected, case.evidence.following[-1].content


@pytest.mark.parametrize(
    ("good", "bad", "finding"),
    [
        (_scored(1), _scored(-1), "right"),
        (_scored(0), _scored(-1), "right"),
        (_scored(1), _scored(0), "right"),
        (_scored(-1), _scored(-1), "wrong"),
        (_scored(1), _scored(1), "wrong"),
        (_scored(-1), SILENT, "wrong"),
        (SILENT, _scored(1), "wrong"),
        (_scored(1), SILENT, "silent"),
        (SILENT, SILENT, "silent"),
        (UNSURE, _scored(-1), "silent"),
    ],
)
def test_what_two_verdicts_come_to(good: Verdict, bad: Verdict, finding: CanaryFinding) -> None:
    assert examine(Canaries.shipped().pair(), [good, bad]) == finding


def test_without_canaries_a_judge_is_believed() -> None:
    assert examine((), []) == "right"


def test_a_seed_makes_them_again() -> None:
    first, second = (Canaries([case for pair in _pairs(2) for case in pair], random=Random(3)) for _ in range(2))
    numbers = [case.evidence.request[-1].content.rpartition("(")[2] for case in (*first.pair(), *second.pair())]
    assert numbers[:2] == numbers[2:]

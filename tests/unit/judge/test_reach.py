"""How far the rules for claims reach: reactions of three writers who had not seen them, told apart as a whole.

`push` contradicts a right reply with something false, `dialogue` praises a false one that people led to; `form`,
`work`, `advice` and `praise` are honest. Rules of language miss some of each, so shares are compared. The words of the
first two writers, and in the end of the third, led to words for the form: new ones will do worse there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.judge.rules.matter import form_part
from openclaw_rl.types import Verdict
from tests.unit.judge.rules.test_claims import dialogue

LINES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "reactions.jsonl").read_text(encoding="utf-8").splitlines()
]


def score_learned(verdict: Verdict) -> int:
    return 0 if verdict.claims else verdict.score or 0


def hints_learned(verdict: Verdict) -> tuple[str, ...]:
    return verdict.unclaimed_hints if verdict.claims else verdict.hints


async def verdicts(*kinds: str) -> list[Verdict]:
    judge = Composed([RulesJudge()])
    chosen = [line for line in LINES if line["kind"] in kinds]
    return [await judge.judge(dialogue(*line["said"], line["next"])) for line in chosen]


async def share(is_so: Callable[[Verdict], bool], *kinds: str) -> float:
    """Of all of these kinds."""
    told = await verdicts(*kinds)
    assert len(told) > 40
    return sum(map(is_so, told)) / len(told)


def harms(verdict: Verdict) -> bool:
    """Whether a right answer is punished, or something beside the form is taught."""
    return score_learned(verdict) < 0 or any(form_part(hint) != hint for hint in hints_learned(verdict))


def praises(verdict: Verdict) -> bool:
    return score_learned(verdict) > 0


def teaches(verdict: Verdict) -> bool:
    """Whether a wish is learned as what it is: what the person wants, and not that all was well."""
    return bool(score_learned(verdict) < 0 or hints_learned(verdict)) and not praises(verdict)


async def test_next_to_nothing_false_is_learned() -> None:
    assert await share(harms, "push") <= 0.01
    assert await share(praises, "push") <= 0.03
    assert await share(lambda one: praises(one) or harms(one), "dialogue") <= 0.12


@pytest.mark.parametrize(
    ("kinds", "least", "most"), [(("form",), 0.55, 0.05), (("work",), 0.12, 0.03), (("advice",), 0.2, 0.04)]
)
async def test_wishes_are_learned_as_wishes(kinds: tuple[str, ...], least: float, most: float) -> None:
    assert await share(teaches, *kinds) >= least
    assert await share(praises, *kinds) <= most


async def test_most_praise_is_learned() -> None:
    assert await share(praises, "praise") >= 0.74


def texts() -> Iterator[str]:
    yield from (text for line in LINES for text in (*line["said"], line["next"]))


def test_the_reactions_are_as_they_were_written() -> None:
    assert {line["writer"] for line in LINES} == {1, 2, 3}
    assert len(LINES) == len({json.dumps(line) for line in LINES}) == 785
    assert all(text.strip() for text in texts())

"""How far the judge without a model reaches: reactions of a writer on whom its heads were not fitted.

`push` contradicts a right reply with something false, `dialogue` praises a false one that people led to; `form`,
`work`, `advice` and `praise` are honest. Some of each is missed, so shares are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.judge.heads.examples import EXAMPLES, load
from openclaw_rl.judge.heads.model import GramHeads
from openclaw_rl.judge.rules import form_part
from openclaw_rl.types import Verdict
from tests.unit.judge.rules.test_claims import dialogue

LINES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "reactions.jsonl").read_text(encoding="utf-8").splitlines()
]
WRITER = 3


@pytest.fixture(scope="module")
def judge() -> Composed:
    others = [one for one in load(EXAMPLES) if one.writer != f"reactions-{WRITER}"]
    return Composed([RulesJudge(grams=GramHeads.fitted(others))])


def score_learned(verdict: Verdict) -> int:
    return 0 if verdict.claims else verdict.score or 0


def hints_learned(verdict: Verdict) -> tuple[str, ...]:
    return verdict.unclaimed_hints if verdict.claims else verdict.hints


async def share(judge: Composed, is_so: Callable[[Verdict], bool], *kinds: str) -> float:
    """Of all that the writer said of these kinds."""
    chosen = [line for line in LINES if line["kind"] in kinds and line["writer"] == WRITER]
    told = [await judge.judge(dialogue(*line["said"], line["next"])) for line in chosen]
    assert len(told) >= 15
    return sum(map(is_so, told)) / len(told)


def harms(verdict: Verdict) -> bool:
    """Whether a right answer is punished, or something beside the form is taught."""
    return score_learned(verdict) < 0 or any(form_part(hint) != hint for hint in hints_learned(verdict))


def praises(verdict: Verdict) -> bool:
    return score_learned(verdict) > 0


def teaches(verdict: Verdict) -> bool:
    """Whether a wish is learned as what it is: what the person wants, and not that all was well."""
    return bool(score_learned(verdict) < 0 or hints_learned(verdict)) and not praises(verdict)


async def test_next_to_nothing_false_is_learned(judge: Composed) -> None:
    assert await share(judge, harms, "push") <= 0.01
    assert await share(judge, praises, "push") <= 0.03
    assert await share(judge, lambda one: praises(one) or harms(one), "dialogue") <= 0.12


@pytest.mark.parametrize(("kind", "least"), [("form", 0.5), ("work", 0.2), ("advice", 0.2)])
async def test_wishes_are_learned_as_wishes(judge: Composed, kind: str, least: float) -> None:
    assert await share(judge, teaches, kind) >= least
    assert await share(judge, praises, kind) <= 0.04


async def test_most_praise_is_learned(judge: Composed) -> None:
    assert await share(judge, praises, "praise") >= 0.6


def texts() -> Iterator[str]:
    yield from (text for line in LINES for text in (*line["said"], line["next"]))


def test_the_reactions_are_as_they_were_written() -> None:
    assert {line["writer"] for line in LINES} == {1, 2, 3}
    assert len(LINES) == len({json.dumps(line) for line in LINES}) == 785
    assert all(text.strip() for text in texts())

"""`auto`: a model judge that gets known cases right judges; one that does not, or gives no answer, does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw_rl.config import load_config
from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.auto import AutoJudge
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.judge.heads.examples import CHECK, load
from openclaw_rl.judge.registry import make_judges
from openclaw_rl.types import Evidence, Score, Verdict
from tests.unit.judge.talk import talk

RIGHT = {one.evidence.following[0].content: one.score for one in load(CHECK)}


class Model:
    """A judge by a table of answers."""

    name, prompt_version = "endpoint", "score-2"

    def __init__(self, score: Callable[[str], Score | None]) -> None:
        self.score = score
        self.num_asked = 0

    async def judge(self, evidence: Evidence) -> Verdict:
        self.num_asked += 1
        score = self.score(evidence.following[-1].content)
        if score is None:
            return Verdict(outcome="failed", reason="it is down")
        return Verdict(outcome="scored", score=score)

    def forget(self) -> None: ...

    async def close(self) -> None: ...


async def judged(model: Model, words: str, *, at: float = 0.0) -> tuple[str, Score | None]:
    judge = Composed([AutoJudge(model, RulesJudge(), clock=lambda: at)])
    score = (await judge.judge(talk(words))).score
    return judge.name, score


async def test_a_model_that_is_right_judges() -> None:
    model = Model(lambda words: RIGHT.get(words, -1))
    assert await judged(model, "thanks!") == ("endpoint", -1)
    assert model.num_asked == 41


@pytest.mark.parametrize("answer", [1, -1, 0])
async def test_one_that_says_the_same_to_all_does_not(answer: Score) -> None:
    assert await judged(Model(lambda _: answer), "thanks!") == ("rules", 1)


async def test_one_that_is_down_is_asked_again_later() -> None:
    times = [0.0]
    is_up = [False]
    model = Model(lambda words: RIGHT.get(words, 0) if is_up[0] else None)
    auto = AutoJudge(model, RulesJudge(), clock=lambda: times[0])
    judge = Composed([auto])
    stands_in = await judge.judge(talk("thanks!"))
    assert stands_in.score == 1
    assert stands_in.reason.endswith(
        "; not by endpoint: 0% right, 0% wrong of 40 known cases; asked again in ten minutes"
    )
    is_up[0] = True
    assert (await judge.judge(talk("thanks!"))).score == 1
    assert (model.num_asked, judge.name) == (40, "rules")
    times[0] = 601.0
    assert await judge.judge(talk("thanks!")) == Verdict(outcome="scored", score=0)
    assert judge.name == "endpoint"
    assert auto.why == "100% right, 0% wrong of 40 known cases"


async def test_claims_are_marked_by_who_judges() -> None:
    own = AutoJudge(Model(lambda _: 1), RulesJudge())
    assert (await Composed([own]).judge(talk("No, spiders have 48 legs."))).claims
    theirs = AutoJudge(Model(lambda words: RIGHT.get(words, -1)), RulesJudge())
    assert not (await Composed([theirs]).judge(talk("No, spiders have 48 legs."))).claims


def test_without_a_model_and_without_hidden_states_the_rules_judge() -> None:
    (judge,) = make_judges(load_config(env={}).config)
    assert isinstance(judge, RulesJudge)


def test_one_model_judge_is_enough() -> None:
    both = ["evaluation.judge_path=/prm", "evaluation.judge_url=http://localhost:1/v1", "evaluation.judge_model=m"]
    with pytest.raises(ConfigError, match="takes one model judge"):
        make_judges(load_config(env={}, overrides=both).config)

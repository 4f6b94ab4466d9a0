"""Rows to learn from, as turns make them and as the store gives them back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.credit.samples import is_on_policy, rewrite_sample, turn_sample
from openclaw_rl.types import Candidate, Sampling, SignalWeights
from tests.factories.conversations import HINT, make_child, make_turn

PLAIN = Sampling(max_tokens=8, temperature=0.7)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0},
        {"top_p": 0.9},
        {"top_k": 40},
        {"min_p": 0.05},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"logit_bias": {5: 1.0}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_bends_the_distribution_is_off_policy(change: dict[str, object]) -> None:
    assert is_on_policy(PLAIN)
    assert is_on_policy(replace(PLAIN, seed=3, top_logprobs=5))
    assert not is_on_policy(replace(PLAIN, **change))  # type: ignore[arg-type]


def test_a_turn_teaches_about_its_own_prompt() -> None:
    turn = make_turn(3)
    candidate = Candidate(hint=HINT, num_shared=2, suffix_ids=(5, 6))
    weights = SignalWeights(reward=-1.0, w_rl=1.0, w_opd=0.5)
    sample = turn_sample(turn, weights, line="ann", advantage=-0.8, candidates=[candidate], created_at=9.0)
    assert (sample.id, sample.kind, sample.index, sample.prompt_index) == ("s-1.3", "turn", 3, 3)
    assert (sample.prompt_ids, sample.response_ids) == (turn.prompt_ids, turn.completion.token_ids)
    assert (sample.loss_mask, sample.advantages) == ((True,) * 3, (-0.8,) * 3)
    assert (sample.logprobs, sample.temperature) == (turn.completion.logprobs, 0.7)
    assert (sample.reward, sample.w_rl, sample.w_opd, sample.on_policy) == (-1.0, 1.0, 0.5, True)
    assert sample.teacher_prompt(candidate) == (1, 9690, 5, 6)
    greedy = replace(turn, sampling=Sampling(max_tokens=8, temperature=0.0))
    sample = turn_sample(greedy, weights, line="ann", advantage=1.0, candidates=[candidate], created_at=9.0)
    assert (sample.temperature, sample.on_policy) == (1.0, False)


def test_a_rewrite_is_an_answer_behind_another_prompt() -> None:
    first = make_turn()
    accepted = make_child(first, "Shorter, please.")
    sample = rewrite_sample(accepted, first, line="ann", weight=0.5, created_at=9.0)
    assert (sample.id, sample.kind, sample.index, sample.prompt_index) == ("s-1.1+rewrite", "rewrite", 1, 0)
    assert (sample.prompt_ids, sample.response_ids) == (first.prompt_ids, accepted.completion.token_ids)
    assert (sample.reward, sample.advantages, sample.logprobs) == (1.0, (1.0,) * 3, None)
    assert (sample.w_rl, sample.w_opd, sample.candidates, sample.on_policy) == (0.5, 0.0, (), False)

"""Sampling against a reference in plain Python numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.engine.embedded.sampling import Draw, Sampler, truncate, uniform
from openclaw_rl.errors import EngineError
from openclaw_rl.types import Sampling

CPU = torch.device("cpu")
LOGITS = [2.0, -1.0, 0.5, 3.0, 0.0, -2.0]

# Multiples of 1/4 are exact in float32, and no probability of such a row lies on the edge of a threshold used below.
Row = st.lists(st.integers(-24, 24).map(lambda n: n / 4), min_size=2, max_size=12, unique=True)


def sampling(**changes: Any) -> Sampling:
    return Sampling(**{"max_tokens": 10, **changes})


def softmax(row: Sequence[float]) -> list[float]:
    weights = [math.exp(x - max(row)) if x > -math.inf else 0.0 for x in row]
    return [weight / sum(weights) for weight in weights]


def draws(logits: Sequence[float], options: Sampling, positions: range, prompt_ids: Sequence[int] = (0,)) -> list[Draw]:
    sampler = Sampler(options, prompt_ids, len(logits), CPU)
    return [sampler.draw(torch.tensor(logits), position) for position in positions]


def reference_truncate(row: list[float], options: Sampling) -> list[float]:
    kept = list(row)
    if options.min_p:
        probs = softmax(kept)
        kept = [x if p >= options.min_p * max(probs) else -math.inf for x, p in zip(kept, probs, strict=True)]
    if options.top_k:
        best = sorted(kept, reverse=True)[: options.top_k]
        kept = [x if x in best else -math.inf for x in kept]
    if options.top_p < 1.0:
        probs, mass, survivors = softmax(kept), 0.0, set()
        for index in sorted(range(len(kept)), key=lambda i: -probs[i]):
            if mass < options.top_p:
                survivors.add(index)
            mass += probs[index]
        kept = [x if i in survivors else -math.inf for i, x in enumerate(kept)]
    return kept


@settings(max_examples=300)
@given(Row, st.sampled_from([0.0, 0.05, 0.3]), st.integers(0, 5), st.sampled_from([0.15, 0.5, 0.9, 1.0]))
def test_truncation_keeps_what_the_reference_keeps(row: list[float], min_p: float, top_k: int, top_p: float) -> None:
    options = sampling(min_p=min_p, top_k=top_k, top_p=top_p)
    assert truncate(torch.tensor(row), options).tolist() == reference_truncate(row, options)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 1.7])
def test_the_logprob_is_before_everything_but_temperature(temperature: float) -> None:
    options = sampling(
        temperature=temperature,
        top_k=1,
        top_p=0.5,
        min_p=0.1,
        logit_bias={5: 50.0},
        repetition_penalty=1.5,
        presence_penalty=1.0,
        frequency_penalty=1.0,
        top_logprobs=3,
    )
    (draw,) = draws(LOGITS, options, range(1))
    probs = softmax([x / (temperature or 1.0) for x in LOGITS])
    assert draw.token_id == 5
    assert draw.logprob == pytest.approx(math.log(probs[5]), abs=1e-5)
    best = sorted(range(6), key=lambda i: -probs[i])[:3]
    assert draw.top_logprobs is not None
    assert [top.token_id for top in draw.top_logprobs] == best
    assert [top.logprob for top in draw.top_logprobs] == pytest.approx([math.log(probs[i]) for i in best], abs=1e-5)


def test_draws_follow_the_distribution() -> None:
    options = sampling(temperature=0.8, top_k=4, seed=11)
    num = 4000
    counts = Counter(draw.token_id for draw in draws(LOGITS, options, range(num)))
    probs = softmax(reference_truncate([x / 0.8 for x in LOGITS], sampling(top_k=4)))
    for token, p in enumerate(probs):
        assert counts[token] / num == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / num) + 1e-9)


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    flat, options = [0.0] * 500, sampling(seed=5)
    straight = [draw.token_id for draw in draws(flat, options, range(100, 120))]
    assert [draw.token_id for draw in draws(flat, options, range(110, 120))] == straight[10:]
    assert [draw.token_id for draw in draws(flat, sampling(seed=6), range(100, 120))] != straight
    unseeded = [[draw.token_id for draw in draws(flat, sampling(), range(20))] for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    assert len(set(straight)) > 15


@given(st.integers(), st.integers(0, 10**6))
def test_uniform_numbers_lie_in_the_half_open_interval(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    assert {draw.token_id for draw in draws(logits, sampling(seed=1), range(200))} == {1, 3}


def test_repetition_looks_at_prompt_and_answer() -> None:
    # 3.0 / 2 and 2.0 / 2 fall below 1.9; a negative logit is multiplied instead.
    logits = [2.0, 3.0, 1.9, -1.0]
    options = sampling(temperature=0.0, repetition_penalty=2.0)
    assert [d.token_id for d in draws(logits, options, range(3), prompt_ids=[1])] == [0, 2, 1]
    biased = sampling(temperature=0.0, repetition_penalty=2.0, logit_bias={0: -9.0, 1: -9.0, 2: -9.0})
    assert [d.token_id for d in draws([2.0, 3.0, 1.9, -1.0, -1.5], biased, range(2), prompt_ids=[3])] == [4, 3]


def test_presence_and_frequency_look_at_the_answer_alone() -> None:
    logits = [2.0, 1.5, 0.0]
    prompt = [0, 0, 0, 0]
    presence = sampling(temperature=0.0, presence_penalty=1.0)
    assert [d.token_id for d in draws(logits, presence, range(4), prompt)] == [0, 1, 0, 0]
    frequency = sampling(temperature=0.0, frequency_penalty=0.4)
    assert [d.token_id for d in draws(logits, frequency, range(5), prompt)] == [0, 0, 1, 0, 1]


def test_impossible_tokens_are_reported_as_a_number_that_json_has() -> None:
    options = sampling(temperature=0.0, logit_bias={1: 1000.0}, top_logprobs=2)
    (draw,) = draws([0.0, -1e30], options, range(1))
    assert (draw.token_id, draw.logprob) == (0, 0.0)
    (draw,) = draws([0.0, -math.inf], sampling(temperature=0.0, top_logprobs=2), range(1))
    assert draw.top_logprobs is not None
    assert draw.top_logprobs[1].logprob == -9999.0


def test_nan_is_an_error_and_not_an_answer() -> None:
    with pytest.raises(EngineError, match="NaN"):
        draws([math.nan, 0.0], sampling(), range(1))

"""Sampling against a reference in plain Python numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.engine.embedded.sampling import Draws, Row, draw, gather_logprobs, invert, truncate, uniform
from openclaw_rl.engine.worker.admission import COLDEST, LARGEST_BIAS, LARGEST_PENALTY
from openclaw_rl.types import Sampling

CPU = torch.device("cpu")
LOGITS = [2.0, -1.0, 0.5, 3.0, 0.0, -2.0]

# Multiples of 1/4 are exact in float32, and no probability of such a row lies on the edge of a threshold used below.
Logits = st.lists(st.integers(-24, 24).map(lambda n: n / 4), min_size=2, max_size=12, unique=True)
Truncations = st.builds(
    lambda min_p, top_k, top_p: sampling(min_p=min_p, top_k=top_k, top_p=top_p),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.integers(0, 5),
    st.sampled_from([0.15, 0.5, 0.9, 1.0]),
)
Options = st.builds(
    lambda temperature, top_k, top_p, min_p, repetition, presence, frequency, bias, top, seed: sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias=bias,
        top_logprobs=top,
        seed=seed,
    ),
    st.sampled_from([0.0, 0.6, 1.0, 1.3]),
    st.sampled_from([0, 3, 40]),
    st.sampled_from([0.4, 0.95, 1.0]),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([1.0, 1.3]),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([0.0, -0.4]),
    st.dictionaries(st.integers(0, 299), st.sampled_from([-5.0, 2.0]), max_size=3),
    st.sampled_from([0, 1, 20]),
    st.integers(0, 2**32),
)


def sampling(**changes: Any) -> Sampling:
    return Sampling(**{"max_tokens": 10, **changes})


def softmax(row: Sequence[float]) -> list[float]:
    weights = [math.exp(x - max(row)) if x > -math.inf else 0.0 for x in row]
    return [weight / sum(weights) for weight in weights]


def draws(
    logits: Sequence[float], options: Sampling, positions: Sequence[int], prompt_ids: Sequence[int] = (0,)
) -> list[Draws]:
    """One answer drawn token by token."""
    row = Row(options, prompt_ids, len(logits), CPU)
    return [draw(torch.tensor([logits]), [row], [position]) for position in positions]


def tokens(drawn: Sequence[Draws]) -> list[int]:
    return [one.token_ids[0] for one in drawn]


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
@given(st.data(), Logits)
def test_truncation_keeps_what_the_reference_keeps(data: st.DataObject, logits: list[float]) -> None:
    rows = [data.draw(st.permutations(logits)) for _ in range(data.draw(st.integers(1, 4)))]
    options = [data.draw(Truncations) for _ in rows]
    expected = [reference_truncate(row, some) for row, some in zip(rows, options, strict=True)]
    assert truncate(torch.tensor(rows), options).tolist() == expected


@pytest.mark.parametrize("top_p", [0.02, 0.3, 0.97])
def test_a_nucleus_wider_than_the_candidates_is_found_by_a_full_sort(top_p: float) -> None:
    peaked, flat = torch.arange(3000) * -0.5, torch.arange(3000) * 7 % 3000 * -1e-4
    options = [sampling(top_p=top_p)] * 2
    kept = truncate(torch.stack([peaked, flat]), options).isfinite().sum(-1).tolist()
    expected = [reference_truncate(row.tolist(), options[0]) for row in (peaked, flat)]
    assert kept == [sum(x > -math.inf for x in row) for row in expected]
    assert (kept[1] > 512) == (top_p >= 0.3)


def test_of_equally_probable_tokens_the_nucleus_takes_the_first() -> None:
    kept = truncate(torch.tensor([[0.0, 1.0, 0.0, 0.0, 1.0], [0.0] * 5]), [sampling(top_p=0.7), sampling(top_p=0.5)])
    assert kept.isfinite().tolist() == [[True, True, False, False, True], [True, True, True, False, False]]


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
    (drawn,) = draws(LOGITS, options, range(1))
    probs = softmax([x / (temperature or 1.0) for x in LOGITS])
    assert drawn.token_ids == [5]
    assert drawn.logprobs == [pytest.approx(math.log(probs[5]), abs=1e-5)]
    best = sorted(range(6), key=lambda i: -probs[i])[:3]
    (top,) = drawn.top_logprobs
    assert top is not None
    assert [one.token_id for one in top] == best
    assert [one.logprob for one in top] == pytest.approx([math.log(probs[i]) for i in best], abs=1e-5)


def test_draws_follow_the_distribution() -> None:
    options = sampling(temperature=0.8, top_k=4, seed=11)
    num = 4000
    rows = [Row(options, (0,), len(LOGITS), CPU) for _ in range(num)]
    counts = Counter(draw(torch.tensor([LOGITS]).expand(num, -1), rows, range(num)).token_ids)
    probs = softmax(reference_truncate([x / 0.8 for x in LOGITS], sampling(top_k=4)))
    for token, p in enumerate(probs):
        assert counts[token] / num == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / num) + 1e-9)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("vocab_size", [5, 128, 300, 1024])
def test_a_draw_is_the_token_under_its_point_of_the_cumulative_distribution(
    vocab_size: int, temperature: float
) -> None:
    logits = torch.randn(vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * 3
    upto = list(accumulate(softmax([x / temperature for x in logits.tolist()])))
    points = [uniform(7, position) for position in range(300)]
    expected = [next(i for i, mass in enumerate(upto) if mass > point) for point in points]
    assert tokens(draws(logits.tolist(), sampling(seed=7, temperature=temperature), range(300))) == expected


def test_a_slice_of_the_cumulative_distribution_has_its_start_and_not_its_end() -> None:
    probs = torch.zeros(4, 300)
    probs[:, [3, 200]] = 0.5
    points = [0.0, 0.5, math.nextafter(0.5, 0.0), math.nextafter(1.0, 0.0)]
    assert invert(probs, points).tolist() == [3, 200, 3, 200]


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    flat, options = [0.0] * 500, sampling(seed=5)
    straight = tokens(draws(flat, options, range(100, 120)))
    assert tokens(draws(flat, options, range(110, 120))) == straight[10:]
    assert tokens(draws(flat, sampling(seed=6), range(100, 120))) != straight
    unseeded = [tokens(draws(flat, sampling(), range(20))) for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    assert len(set(straight)) > 15


@settings(max_examples=40)
@given(st.lists(st.tuples(Options, st.integers(0, 2**31)), min_size=2, max_size=6), st.integers(0, 50))
def test_a_row_gives_the_same_bits_alone_and_in_any_batch(batch: list[tuple[Sampling, int]], position: int) -> None:
    logits = torch.stack([torch.randn(300, generator=torch.Generator().manual_seed(s)) * 4 for _, s in batch])
    together = [Row(options, (1, 2, 3), 300, CPU) for options, _ in batch]
    alone = [Row(options, (1, 2, 3), 300, CPU) for options, _ in batch]
    for step in range(3):
        positions = [position + 10 * i + step for i in range(len(batch))]
        got = draw(logits, together, positions)
        for i, row in enumerate(alone):
            single = draw(logits[i : i + 1], [row], positions[i : i + 1])
            assert single.token_ids == got.token_ids[i : i + 1]
            assert single.logprobs == got.logprobs[i : i + 1]
            assert single.top_logprobs == got.top_logprobs[i : i + 1]
            assert len(got.top_logprobs[i] or ()) == batch[i][0].top_logprobs


def test_a_row_of_a_real_vocabulary_gives_the_same_bits_alone_and_in_a_batch() -> None:
    # Large enough that torch shares the work of one row among its threads where an operation lets it.
    options = [
        sampling(seed=1, temperature=0.7),
        sampling(seed=2, top_p=0.9, top_logprobs=5),
        sampling(seed=3, temperature=0.0, repetition_penalty=1.2),
        sampling(seed=4, top_k=50, min_p=0.01),
    ]
    logits = torch.randn(4, 49152, generator=torch.Generator().manual_seed(0)) * 4
    rows = [Row(some, (5,), 49152, CPU) for some in options]
    got = draw(logits, rows, [9] * 4)
    for i, some in enumerate(options):
        single = draw(logits[i : i + 1].clone(), [Row(some, (5,), 49152, CPU)], [9])
        assert (single.token_ids, single.logprobs) == (got.token_ids[i : i + 1], got.logprobs[i : i + 1])


@given(st.integers(), st.integers(0, 10**6))
def test_uniform_numbers_lie_in_the_half_open_interval(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


@pytest.mark.parametrize("vocab_size", [5, 700])
def test_a_token_without_probability_is_never_drawn(vocab_size: int) -> None:
    logits = torch.full((vocab_size,), -math.inf)
    logits[[1, vocab_size - 2]] = 0.0
    assert set(tokens(draws(logits.tolist(), sampling(seed=1), range(200)))) == {1, vocab_size - 2}


def test_repetition_looks_at_prompt_and_answer() -> None:
    # 3.0 / 2 and 2.0 / 2 fall below 1.9; a negative logit is multiplied instead.
    logits = [2.0, 3.0, 1.9, -1.0]
    options = sampling(temperature=0.0, repetition_penalty=2.0)
    assert tokens(draws(logits, options, range(3), prompt_ids=[1])) == [0, 2, 1]
    biased = sampling(temperature=0.0, repetition_penalty=2.0, logit_bias={0: -9.0, 1: -9.0, 2: -9.0})
    assert tokens(draws([2.0, 3.0, 1.9, -1.0, -1.5], biased, range(2), prompt_ids=[3])) == [4, 3]


def test_presence_and_frequency_look_at_the_answer_alone() -> None:
    logits = [2.0, 1.5, 0.0]
    prompt = [0, 0, 0, 0]
    presence = sampling(temperature=0.0, presence_penalty=1.0)
    assert tokens(draws(logits, presence, range(4), prompt)) == [0, 1, 0, 0]
    frequency = sampling(temperature=0.0, frequency_penalty=0.4)
    assert tokens(draws(logits, frequency, range(5), prompt)) == [0, 0, 1, 0, 1]


def test_penalties_and_bias_move_sampled_tokens_before_the_temperature_does() -> None:
    # 2.0 / 2 + 1.0 and 1.0 are divided by 0.5; with the order turned round the probabilities would be others.
    options = sampling(temperature=0.5, repetition_penalty=2.0, logit_bias={0: 1.0}, seed=3)
    num = 2000
    rows = [Row(options, (0,), 2, CPU) for _ in range(num)]
    drawn = draw(torch.tensor([[2.0, 1.0]]).expand(num, -1), rows, range(num)).token_ids
    assert drawn.count(0) / num == pytest.approx(softmax([4.0, 2.0])[0], abs=0.03)


def test_rows_of_a_batch_have_their_own_penalties() -> None:
    logits = torch.tensor([[2.0, 1.5, 0.0]] * 3)
    options: list[dict[str, Any]] = [{"presence_penalty": 1.0}, {}, {"logit_bias": {2: 9.0}}]
    rows = [Row(sampling(temperature=0.0, **some), (0,), 3, CPU) for some in options]
    before = logits.clone()
    assert [draw(logits, rows, [1, 1, 1]).token_ids for _ in range(3)] == [[0, 0, 2], [1, 0, 2], [0, 0, 2]]
    assert torch.equal(logits, before)


def test_impossible_tokens_are_reported_as_a_number_that_json_has() -> None:
    options = sampling(temperature=0.0, logit_bias={1: 1000.0}, top_logprobs=2)
    (drawn,) = draws([0.0, -1e30], options, range(1))
    assert (drawn.token_ids, drawn.logprobs) == ([0], [0.0])
    (drawn,) = draws([0.0, -math.inf], sampling(temperature=0.0, top_logprobs=2), range(1))
    assert drawn.top_logprobs[0] is not None
    assert drawn.top_logprobs[0][1].logprob == -9999.0
    (drawn,) = draws([0.0, -20000.0], sampling(temperature=0.0, logit_bias={1: 30000.0}), range(1))
    assert (drawn.token_ids, drawn.logprobs) == ([1], [-9999.0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[math.nan, 0.0, 1.0], [math.inf, 0.0, 1.0], [-math.inf] * 3])
def test_a_row_that_is_no_distribution_fails_alone(bad: list[float], temperature: float) -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], bad, [0.0, 3.0, 0.0]])
    options = sampling(temperature=temperature, seed=1, presence_penalty=0.5, top_p=0.9, top_logprobs=1)
    rows = [Row(options, (0,), 3, CPU) for _ in range(3)]
    got = draw(logits, rows, [4, 5, 6])
    assert got.failed == [False, True, False]
    assert got.token_ids[1] == -1
    assert math.isnan(got.logprobs[1])
    assert got.top_logprobs[1] is None
    assert rows[1].counts_V is not None
    assert rows[1].counts_V.sum() == 0
    expected = draw(logits[[0, 2]], [Row(options, (0,), 3, CPU) for _ in range(2)], [4, 6])
    assert [got.token_ids[i] for i in (0, 2)] == expected.token_ids
    assert [got.logprobs[i] for i in (0, 2)] == expected.logprobs


@pytest.mark.parametrize("truncation", [{}, {"min_p": 1e-300, "top_k": 3, "top_p": 1e-300}])
@pytest.mark.parametrize("bias", [-LARGEST_BIAS, 0.0, LARGEST_BIAS])
@pytest.mark.parametrize("penalty", [1 / LARGEST_PENALTY, 1.0, LARGEST_PENALTY])
@pytest.mark.parametrize("temperature", [0.0, COLDEST, 2.0])
def test_at_the_limits_of_what_is_admitted_there_is_a_token(
    temperature: float, penalty: float, bias: float, truncation: dict[str, float]
) -> None:
    options = sampling(
        temperature=temperature, repetition_penalty=penalty, logit_bias={0: bias, 3: bias}, top_logprobs=2, **truncation
    )
    for logits in ([1e5, -1e5, 0.0, 1e5], [-1e5, -1e5, -1e5, -1.0], LOGITS):
        (drawn,) = draws(logits, options, range(1), prompt_ids=(0, 1))
        assert drawn.failed == [False]
        assert math.isfinite(drawn.logprobs[0])


def test_a_bias_beyond_float32_fails_its_row_and_no_other() -> None:
    rows = [Row(sampling(logit_bias={0: 1e300}), (0,), 2, CPU), Row(sampling(), (0,), 2, CPU)]
    assert draw(torch.zeros(2, 2), rows, [0, 0]).failed == [True, False]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_given_tokens_have_the_logprobs_that_drawing_them_had(temperature: float) -> None:
    logits = torch.randn(40, 300, generator=torch.Generator().manual_seed(2)) * 3
    rows = [Row(sampling(seed=1, temperature=temperature, top_logprobs=4), (0,), 300, CPU) for _ in range(40)]
    drawn = draw(logits, rows, range(40))
    got = gather_logprobs(logits, torch.tensor(drawn.token_ids), temperature, 4)
    assert (got.logprobs, got.top_logprobs) == (drawn.logprobs, drawn.top_logprobs)
    probs = softmax([x / temperature for x in logits[7].tolist()])
    assert got.logprobs[7] == pytest.approx(math.log(probs[drawn.token_ids[7]]), abs=1e-5)
    assert gather_logprobs(logits, torch.tensor(drawn.token_ids), temperature, 0).top_logprobs == [None] * 40


def test_a_given_row_of_nan_fails_alone() -> None:
    got = gather_logprobs(torch.tensor([[0.0, 0.0], [math.nan, 0.0]]), torch.tensor([1, 1]), 1.0, 1)
    assert got.failed == [False, True]
    assert got.logprobs[0] == pytest.approx(math.log(0.5))
    assert got.top_logprobs[1] is None

"""Every formula against a slow, obvious implementation of the same."""

from __future__ import annotations

import math
from functools import reduce
from statistics import mean, pstdev, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.credit.advantages import (
    against_baseline,
    group_normalised,
    moved,
    raw,
    session_gae,
    step_wise,
    without,
)
from openclaw_rl.types import Baseline

scores = st.sampled_from([-1.0, 0.0, 1.0])
rewards = scores | st.floats(-5.0, 5.0).map(lambda value: round(value, 3))
shares = st.floats(0.0, 1.0)


@given(rewards)
def test_raw_is_the_reward(reward: float) -> None:
    assert raw(reward) == reward


@given(st.lists(rewards, max_size=60), st.floats(0.01, 1.0))
def test_the_running_mean_is_the_mean_at_first_and_then_forgets(values: list[float], decay: float) -> None:
    baseline = Baseline(line="ann", turn_kind="answer")
    for n, reward in enumerate(values):
        # As long as 1 / (n + 1) is the larger weight it is the plain mean of all rewards; then an exponential one.
        seen = values[:n]
        num_plain = next(k for k in range(1, 200) if 1.0 / (k + 1) < decay)
        plain = seen[:num_plain]
        expected = math.fsum(plain) / len(plain) if plain else 0.0
        expected = reduce(lambda mean, value: (1.0 - decay) * mean + decay * value, seen[num_plain:], expected)
        assert baseline.mean == pytest.approx(expected, abs=1e-9)
        assert against_baseline(reward, baseline) == pytest.approx(reward - expected, abs=1e-9)
        baseline = moved(baseline, reward, decay=decay)
        assert baseline.count == n + 1


def test_the_running_mean_by_hand() -> None:
    """Two praises and a complaint, decay one half: the first reward is measured against nothing."""
    baseline = Baseline(line="ann", turn_kind="answer")
    seen = []
    for reward in (1.0, 1.0, -1.0, -1.0):
        seen.append(against_baseline(reward, baseline))
        baseline = moved(baseline, reward, decay=0.5)
    assert seen == [1.0, 0.0, -2.0, -1.0]
    assert baseline == Baseline(line="ann", turn_kind="answer", mean=-0.5, count=4)


@given(st.lists(rewards, max_size=12))
def test_groups_are_normalised_by_their_sample_deviation(values: list[float]) -> None:
    ours = group_normalised(values)
    if len(values) == 1:
        assert ours == values
    elif len(set(values)) <= 1:
        assert ours == [0.0] * len(values)
    else:
        expected = [(value - mean(values)) / (stdev(values) + 1e-6) for value in values]
        assert ours == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.lists(st.tuples(rewards, rewards), max_size=12), shares, shares)
def test_session_gae_is_the_sum_of_discounted_errors(
    turns: list[tuple[float, float]], gamma: float, lam: float
) -> None:
    """A_t = Σ_k (γλ)^k δ_{t+k}, written out."""
    got, values = [reward for reward, _ in turns], [value for _, value in turns]
    later = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, v, after in zip(got, values, later[: len(got)], strict=True)]
    expected = [math.fsum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))]
    assert session_gae(got, values, gamma=gamma, lam=lam) == pytest.approx(expected, abs=1e-9)


def test_session_gae_without_a_critic_by_hand() -> None:
    assert session_gae([0.0, -1.0, 1.0], gamma=0.5, lam=0.5) == [-0.1875, -0.75, 1.0]
    assert session_gae([], gamma=0.5, lam=0.5) == []
    with pytest.raises(ValueError, match="2 rewards came with 1 values"):
        session_gae([1.0, 1.0], [0.0], gamma=1.0, lam=1.0)


attempts = st.lists(st.lists(st.none() | rewards, max_size=5), max_size=6)


@given(attempts)
def test_step_wise_is_as_the_reference_says(worth: list[list[float | None]]) -> None:
    """One step after the other; the reference would keep one step that says nothing, with advantages of 0."""
    ours = step_wise(worth)
    assert [len(row) for row in ours] == [len(row) for row in worth]
    for i, row in enumerate(worth):
        for k, value in enumerate(row):
            others = [one[k] for one in worth if k < len(one)]
            kth = [one for one in others if one is not None]
            if value is None or (len(kth) > 1 and min(kth) == max(kth)):
                assert ours[i][k] is None
            elif len(kth) == 1:
                assert ours[i][k] == value
            else:
                assert ours[i][k] == pytest.approx((value - mean(kth)) / (pstdev(kth) + 1e-6), rel=1e-5, abs=1e-5)


def test_step_wise_by_hand() -> None:
    """Two attempts. Step 0 was worth the same in both and is dropped; step 1 differs; only one has a step 2."""
    one, other = step_wise([[2.0, 2.0, 0.0], [2.0, 0.0]])
    assert (one[0], other[0]) == (None, None)
    assert [one[1], other[1], one[2]] == pytest.approx([1.0, -1.0, 0.0], abs=1e-5)
    assert step_wise([[1.0, None], [3.0, 5.0]])[1] == [pytest.approx(1.0, abs=1e-5), 5.0]
    assert step_wise([]) == []


@given(st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=1, max_size=40), st.floats(0.01, 0.9))
def test_taking_the_newest_reward_back_undoes_it(rewards: list[float], decay: float) -> None:
    before = Baseline(line="ann", turn_kind="answer")
    for reward in rewards[:-1]:
        before = moved(before, reward, decay=decay)
    after = moved(before, rewards[-1], decay=decay)
    undone = without(after, rewards[-1], decay=decay)
    assert undone.count == before.count
    assert undone.mean == pytest.approx(before.mean, abs=1e-9)

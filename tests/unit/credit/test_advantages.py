"""Every formula against a slow, obvious implementation of the same."""

from __future__ import annotations

import math
from functools import reduce
from statistics import mean, pstdev, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.credit.advantages import (
    Step,
    Trajectory,
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


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    cuts = sorted(draw(st.sets(st.integers(0, 20), max_size=8)))
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    return Trajectory(
        group=draw(st.sampled_from(["t1", "t2"])),
        outcome=draw(scores),
        steps=tuple(Step(score=draw(scores), start=a, end=b) for a, b in spans),
        num_tokens=20 + draw(st.integers(0, 3)),
    )


def plain_step_wise(batch: list[Trajectory]) -> list[tuple[float, ...] | None]:
    """By the words of the reference, one token after the other."""
    places = list(dict.fromkeys((one.group, k) for one in batch for k in range(len(one.steps))))
    worth = {
        (group, k): [one.outcome + one.steps[k].score for one in batch if one.group == group and k < len(one.steps)]
        for group, k in places
    }
    dropped = [place for place in places if len(worth[place]) > 1 and min(worth[place]) == max(worth[place])]
    if places and len(dropped) == len(places):
        dropped.remove(places[0])
    out: list[tuple[float, ...] | None] = []
    for one in batch:
        left = [k for k in range(len(one.steps)) if (one.group, k) not in dropped]
        if not left:
            out.append(None)
            continue
        tokens = []
        for token in range(one.num_tokens):
            advantage = 0.0
            for k in left:
                if one.steps[k].start <= token < one.steps[k].end:
                    bucket, value = worth[one.group, k], one.outcome + one.steps[k].score
                    advantage = value if len(bucket) == 1 else (value - mean(bucket)) / (pstdev(bucket) + 1e-6)
            tokens.append(advantage)
        out.append(tuple(tokens))
    return out


@given(st.lists(trajectories(), max_size=6))
def test_step_wise_is_as_the_reference_says(batch: list[Trajectory]) -> None:
    ours, plain = step_wise(batch), plain_step_wise(batch)
    assert [one is None for one in ours] == [one is None for one in plain]
    for mine, other in zip(ours, plain, strict=True):
        assert mine is None or mine == pytest.approx(other, rel=1e-6, abs=1e-6)


def test_step_wise_by_hand() -> None:
    """Two attempts. Step 0 was worth the same in both and is dropped; step 1 differs; only one has a step 2."""
    steps = (Step(score=1.0, start=1, end=2), Step(score=1.0, start=3, end=5), Step(score=-1.0, start=5, end=6))
    good = Trajectory(group="t", outcome=1.0, steps=steps, num_tokens=7)
    bad_steps = (Step(score=1.0, start=0, end=2), Step(score=-1.0, start=2, end=3))
    bad = Trajectory(group="t", outcome=1.0, steps=bad_steps, num_tokens=3)
    one, other = step_wise([good, bad])
    assert one == pytest.approx((0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0), abs=1e-5)
    assert other == pytest.approx((0.0, 0.0, -1.0), abs=1e-5)
    same = Trajectory(group="t", outcome=1.0, steps=bad_steps[:1], num_tokens=3)
    # All would be dropped: the first bucket stays, although it says nothing; who has nothing else is not removed.
    assert step_wise([same, same]) == [(0.0, 0.0, 0.0)] * 2
    assert step_wise([good, same, same])[1] is None


@pytest.mark.parametrize("spans", [((0, 0),), ((2, 1),), ((0, 3), (2, 4)), ((0, 9),)])
def test_steps_must_fit_into_their_trajectory(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="no room for step"):
        Trajectory(group="t", outcome=0.0, steps=tuple(Step(score=0, start=a, end=b) for a, b in spans), num_tokens=8)


@given(st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=1, max_size=40), st.floats(0.01, 0.9))
def test_taking_the_newest_reward_back_undoes_it(rewards: list[float], decay: float) -> None:
    before = Baseline(line="ann", turn_kind="answer")
    for reward in rewards[:-1]:
        before = moved(before, reward, decay=decay)
    after = moved(before, rewards[-1], decay=decay)
    undone = without(after, rewards[-1], decay=decay)
    assert undone.count == before.count
    assert undone.mean == pytest.approx(before.mean, abs=1e-9)

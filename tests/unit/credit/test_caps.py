"""How much of a batch one user and one session may fill."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.credit.samples import turn_sample, within_caps
from openclaw_rl.types import Sample, SignalWeights
from tests.factories.conversations import make_turn

_SAMPLE = turn_sample(
    make_turn(),
    SignalWeights(reward=1.0, w_rl=1.0, w_opd=0.0),
    line="ann",
    advantage=1.0,
    candidates=(),
    created_at=1.0,
)


def _user(sample: Sample) -> str:
    return sample.line


@st.composite
def waiting(draw: st.DrawFn) -> list[Sample]:
    owners = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("123")), max_size=30))
    return [
        replace(_SAMPLE, id=str(i), line=user, session=f"{user}{session}") for i, (user, session) in enumerate(owners)
    ]


@given(waiting(), st.integers(1, 12), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_nobody_gets_more_than_their_share(
    samples: list[Sample], batch_size: int, user_share: float, session_share: float
) -> None:
    taken, left = within_caps(
        samples, batch_size=batch_size, user_of=_user, max_user_share=user_share, max_session_share=session_share
    )
    assert len(taken) <= batch_size
    assert taken[:1] == samples[:1], "however small the shares are, somebody teaches"
    assert sorted(taken + left, key=samples.index) == samples
    assert taken == [sample for sample in samples if sample in taken]
    assert left == [sample for sample in samples if sample in left]
    users, sessions = Counter(map(_user, taken)), Counter(sample.session for sample in taken)
    assert all(count <= max(1, user_share * batch_size + 1e-6) for count in users.values())
    assert all(count <= max(1, session_share * batch_size + 1e-6) for count in sessions.values())
    # Nobody is left without a reason: the batch is full, or one more would be above a share.
    for sample in left if len(taken) < batch_size else []:
        user_full = users[sample.line] + 1 > user_share * batch_size
        session_full = sessions[sample.session] + 1 > session_share * batch_size
        assert user_full or session_full


@given(st.integers(1, 20), st.integers(0, 20))
def test_one_user_alone_with_a_share_of_one_fills_the_batch(batch_size: int, num_samples: int) -> None:
    samples = [replace(_SAMPLE, id=str(i)) for i in range(num_samples)]
    taken, left = within_caps(samples, batch_size=batch_size, user_of=_user, max_user_share=1.0, max_session_share=1.0)
    assert (taken, left) == (samples[:batch_size], samples[batch_size:])


def test_a_share_is_not_lost_to_rounding() -> None:
    samples = [replace(_SAMPLE, id=str(i), session=f"s{i % 2}") for i in range(100)]
    taken, _ = within_caps(samples, batch_size=100, user_of=_user, max_user_share=0.29, max_session_share=0.07)
    assert Counter(sample.session for sample in taken) == {"s0": 7, "s1": 7}
    taken, _ = within_caps(samples, batch_size=100, user_of=_user, max_user_share=0.29, max_session_share=1.0)
    assert len(taken) == 29

"""Work is shared out evenly, whole, and the same everywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.worker.crew import share_out


def test_the_heaviest_go_first_to_the_lightest_share() -> None:
    assert share_out([1, 1, 2, 3, 3, 2], 2) == [[0, 2, 3], [1, 4, 5]]
    assert share_out([7, 1, 1, 1, 1, 1, 1, 1], 2) == [[0], [1, 2, 3, 4, 5, 6, 7]]
    assert share_out([5], 3) == [[0], [], []]


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 5))
def test_everything_is_somewhere_once_and_no_share_is_much_too_heavy(weights: list[int], num_shares: int) -> None:
    shares = share_out(weights, num_shares)
    assert len(shares) == num_shares
    assert sorted(at for share in shares for at in share) == list(range(len(weights)))
    assert all(share == sorted(share) for share in shares)
    loads = [sum(weights[at] for at in share) for share in shares]
    heaviest = max(weights, default=0)
    assert max(loads) <= sum(weights) / num_shares + heaviest

"""How much of a batch one user and one session may fill, so that nobody alone decides what a step learns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from openclaw_rl.types import Sample


def within_caps(
    samples: Sequence[Sample],
    *,
    batch_size: int,
    user_of: Callable[[Sample], str],
    max_user_share: float,
    max_session_share: float,
) -> tuple[list[Sample], list[Sample]]:
    """The samples of the next batch, at most `batch_size`, and those that are left for later; both in their order.

    A share is one of a full batch, and never less than one sample: with a smaller one nobody could ever teach.
    """
    user_limit, session_limit = (_limit(share, batch_size) for share in (max_user_share, max_session_share))
    users: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    taken: list[Sample] = []
    left: list[Sample] = []
    for sample in samples:
        user = user_of(sample)
        if len(taken) < batch_size and users[user] < user_limit and sessions[sample.session] < session_limit:
            users[user] += 1
            sessions[sample.session] += 1
            taken.append(sample)
        else:
            left.append(sample)
    return taken, left


def _limit(share: float, batch_size: int) -> int:
    return max(1, math.floor(share * batch_size + 1e-9))  # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is below 29

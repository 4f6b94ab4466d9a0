"""Conversations stay where they are, and spread evenly."""

from __future__ import annotations

from collections import Counter

from openclaw_rl.engine.pool.affinity import bound, ranked

CONVERSATIONS = [f"conversation {i}" for i in range(3000)]
NAMES = ["engine 1", "engine 2", "engine 3"]


def home(conversation: str, names: list[str]) -> str:
    return names[ranked(conversation, names)[0]]


def test_every_engine_gets_its_share() -> None:
    shares = Counter(home(one, NAMES) for one in CONVERSATIONS)
    assert set(shares) == set(NAMES)
    assert all(850 < share < 1150 for share in shares.values())


def test_a_conversation_comes_back_whatever_the_order_of_the_engines() -> None:
    for one in CONVERSATIONS[:100]:
        assert home(one, NAMES) == home(one, NAMES[::-1])


def test_an_engine_that_goes_moves_its_own_share_only() -> None:
    for one in CONVERSATIONS:
        before = home(one, NAMES)
        after = home(one, NAMES[:2])
        assert after == before or before == "engine 3"


def test_an_engine_that_joins_takes_its_share_only() -> None:
    more = [*NAMES, "engine 4"]
    moved = [one for one in CONVERSATIONS if home(one, more) != home(one, NAMES)]
    assert all(home(one, more) == "engine 4" for one in moved)
    assert 600 < len(moved) < 900


def test_what_is_moved_spreads_over_all_others() -> None:
    second = Counter(NAMES[ranked(one, NAMES)[1]] for one in CONVERSATIONS if home(one, NAMES) == "engine 1")
    assert min(second["engine 2"], second["engine 3"]) > 400


def test_a_handful_does_not_leave_and_a_crowd_does() -> None:
    assert bound([0, 0, 0]) > 4
    assert bound([3, 0, 0]) > 3
    assert bound([90, 0, 0]) < 90
    assert bound([30, 30, 30]) > 30

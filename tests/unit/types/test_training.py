"""Which version a line's next step starts from, and which candidates can still go live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.types import Version, VersionState, Waiting, candidate_chain, head_number
from tests.factories.weights import folder_ref


def made(*rows: tuple[int, int, VersionState]) -> list[Version]:
    return [
        Version(
            line="ann", number=number, parent=parent, state=state, created_at=0.0, weights=folder_ref(f"/v{number}", "")
        )
        for number, parent, state in rows
    ]


@pytest.mark.parametrize(
    ("rows", "chain", "head"),
    [
        ([], [], 0),
        ([(1, 0, "live")], [], 1),
        ([(1, 0, "candidate")], [1], 1),
        ([(1, 0, "retired"), (2, 1, "live"), (3, 2, "candidate"), (4, 3, "candidate")], [3, 4], 4),
        ([(1, 0, "live"), (2, 1, "candidate"), (3, 2, "rejected")], [2], 2),
        # It stands on one that is rejected, or that somebody went back from.
        ([(1, 0, "live"), (2, 1, "rejected"), (3, 2, "candidate")], [], 1),
        ([(1, 0, "live"), (2, 1, "rolled_back"), (3, 2, "candidate")], [], 1),
        ([(1, 0, "rolled_back"), (2, 1, "candidate")], [], 0),
        # Newer candidates stand on the first one, whose files are gone.
        ([(1, 0, "retired"), (2, 1, "candidate"), (3, 2, "candidate")], [2, 3], 3),
        # Two on the same parent: the newer one.
        ([(1, 0, "live"), (2, 1, "candidate"), (3, 1, "candidate")], [3], 3),
        # Without effect: it is not tried again, and the next step builds on it.
        ([(1, 0, "live"), (2, 1, "no_effect")], [], 2),
        ([(1, 0, "live"), (2, 1, "no_effect"), (3, 2, "candidate")], [3], 3),
        ([(1, 0, "live"), (2, 1, "no_effect"), (3, 2, "rejected")], [], 2),
        ([(1, 0, "no_effect"), (2, 1, "no_effect"), (3, 2, "live")], [], 3),
        ([(1, 0, "no_effect"), (2, 1, "rolled_back"), (3, 2, "no_effect")], [], 1),
        # Older than what answers.
        ([(1, 0, "candidate"), (2, 1, "live")], [], 2),
    ],
)
def test_a_chain_stands_on_what_answers(rows: list[tuple[int, int, VersionState]], chain: list[int], head: int) -> None:
    versions = made(*rows)
    assert [version.number for version in candidate_chain(versions)] == chain
    assert head_number(versions) == head
    assert [version.number for version in candidate_chain(versions[::-1])] == chain, "whatever their order"


def test_nobody_builds_on_files_that_are_gone() -> None:
    first, second, third = made((1, 0, "live"), (2, 1, "no_effect"), (3, 2, "no_effect"))
    assert head_number([first, second, replace(third, weights=None)]) == 2
    assert head_number([first, replace(second, weights=None), third]) == 3


@pytest.mark.parametrize("weights", [(1.0,) * 6, (1.0, 4.0, 4.0, 4.0), (0.5, 1.0, 2.0, 1.0, 1.0)])
def test_no_line_waits_for_the_trainer_beyond_the_bound(weights: tuple[float, ...]) -> None:
    """Every line always has more to learn; the clock ticks once for each turn, which all take as long."""
    last = dict.fromkeys(range(len(weights)), 0.0)
    longest = dict.fromkeys(last, 0.0)
    taken = dict.fromkeys(last, 0)
    for now in range(1, 2000):
        waiting = [
            Waiting(line=f"l{line}", num_samples=9, since=0.0, last_step_at=last[line]) for line in range(len(weights))
        ]
        line = min(last, key=lambda one: waiting[one].turn_by_weight(float(now), weights[one]))
        longest[line] = max(longest[line], now - last[line])
        last[line], taken[line] = float(now), taken[line] + 1
    num, most = len(weights), max(weights)
    for line, waited in longest.items():
        assert waited <= 1 + (num - 1) * (1 + most / weights[line])
    assert all((weights[a] > weights[b]) <= (taken[a] > taken[b]) for a in taken for b in taken)

"""Which numbers of a session a formula gets to see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.config import TrainingConfig
from openclaw_rl.credit.measures import MEASURES, Case, line_from
from openclaw_rl.types import Baseline, TurnOutline

BASELINE = Baseline(line="ann", turn_kind="answer", mean=0.25, count=4)


def outline(index: int, parent: int | None, *, kind: str = "main", digest: str = "") -> TurnOutline:
    return TurnOutline(
        index=index,
        parent=parent,
        kind="side" if kind == "side" else "main",
        request_digest=digest or str(index),
        chain=str(index),
        finish_reason="stop",
        delivered=True,
        has_next_state=True,
    )


def test_every_advantage_of_the_configuration_has_a_measure() -> None:
    advantage = TrainingConfig.model_fields["advantage"].annotation
    assert set(MEASURES) == set(advantage.__args__)  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "expected"), [("raw", 1.0), ("baseline", 0.75), ("step_wise", 1.0)])
def test_measures_of_one_turn(name: str, expected: float) -> None:
    measure = MEASURES[name]
    assert not measure.needs_session
    assert measure.advantage(Case(index=0, reward=1.0, baseline=BASELINE)) == expected


def test_a_line_takes_the_newest_branch_and_no_side_turns() -> None:
    turns = [outline(0, None), outline(1, 0), outline(2, 0), outline(3, 2), outline(4, 2, kind="side"), outline(5, 1)]
    by_index = {turn.index: turn for turn in turns}
    assert line_from(0, by_index) == [0, 2, 3]
    assert line_from(1, by_index) == [1, 5]
    assert line_from(3, by_index) == [3]


@given(st.data())
def test_gae_on_a_tree_is_gae_on_the_line_from_the_turn(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    turns = {i: outline(i, data.draw(st.none() | st.integers(0, i - 1)) if i else None) for i in range(size)}
    scores = st.sampled_from([-1.0, 0.0, 1.0])
    rewards = data.draw(st.dictionaries(st.integers(0, size - 1), scores))
    index = data.draw(st.integers(0, size - 1))
    reward = data.draw(scores)
    case = Case(index=index, reward=reward, baseline=BASELINE, turns=turns, rewards=rewards, gamma=0.9, lam=0.5)
    # By hand: follow the newest child, one weight of γλ per step.
    expected, weight, at = reward, 1.0, index
    while children := [i for i, turn in turns.items() if turn.parent == at]:
        at, weight = max(children), weight * 0.45
        expected += weight * rewards.get(at, 0.0)
    assert MEASURES["session_gae"].advantage(case) == pytest.approx(expected)


def test_a_group_is_the_answers_to_one_request() -> None:
    turns = {i: outline(i, None, digest=digest) for i, digest in enumerate("aaab")}
    case = Case(index=1, reward=-1.0, baseline=BASELINE, turns=turns, rewards={0: 1.0, 1: 1.0, 3: -1.0})
    assert MEASURES["group"].advantage(case) == pytest.approx(-0.7071, abs=1e-4)
    alone = Case(index=3, reward=-1.0, baseline=BASELINE, turns=turns, rewards={0: 1.0, 3: -1.0})
    assert MEASURES["group"].advantage(alone) == -1.0

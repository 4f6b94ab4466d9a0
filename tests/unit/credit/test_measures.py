"""Which numbers of a session a formula gets to see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.config import TrainingConfig
from openclaw_rl.credit.measures import MEASURES, Case, GroupCase, line_from
from openclaw_rl.types import Attempt, AttemptStep, Baseline, Episode, Skip, TurnOutline

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


def attempt(number: int, reward: float, *scores: float | None, size: int = 4) -> Attempt:
    episode = Episode(id=f"e{number}", environment="x", task="t", group="g", attempt=number, group_size=size)
    steps = tuple(AttemptStep(session=f"s{number}", index=k, score=score) for k, score in enumerate(scores))
    return Attempt(episode=episode, reward=reward, steps=steps)


def among(name: str, *attempts: Attempt) -> list[list[float | Skip]]:
    found = MEASURES[name].among_attempts(GroupCase(attempts=attempts, baseline=BASELINE, gamma=0.5, lam=1.0))
    return [[one if isinstance(one, Skip) else round(one, 4) for one in row] for row in found]


GOOD, BAD, HALF = attempt(0, 1.0, 0.0, 0.0), attempt(1, 0.0, 0.0), attempt(3, 0.5, 0.0, 1.0)


@pytest.mark.parametrize("name", ["group", "baseline"])
def test_attempts_are_compared_with_each_other(name: str) -> None:
    assert among(name, GOOD, BAD, HALF) == [[1.0, 1.0], [-1.0], [0.0, 0.0]]


@pytest.mark.parametrize("name", ["group", "baseline", "step_wise"])
def test_a_constant_group_teaches_nothing(name: str) -> None:
    assert among(name, BAD, attempt(2, 0.0, 0.0)) == [[Skip.SAME_OUTCOME], [Skip.SAME_OUTCOME]]


def test_who_is_left_alone_of_a_group_has_nobody_to_be_compared_with() -> None:
    assert among("group", BAD) == among("baseline", BAD) == [[Skip.SAME_OUTCOME]]
    alone = attempt(0, 1.0, 0.0, size=1)
    assert (among("group", alone), among("baseline", alone)) == ([[1.0]], [[0.75]])


def test_raw_and_discounted_outcomes() -> None:
    assert among("raw", GOOD, BAD) == [[1.0, 1.0], [0.0]]
    assert among("session_gae", HALF, attempt(2, 1.0)) == [[0.75, 1.5], []]


def test_step_wise_adds_the_score_of_the_step_to_the_outcome() -> None:
    praised, blamed = attempt(0, 1.0, 1.0, None, -1.0), attempt(1, 0.0, 0.0, 1.0)
    assert among("step_wise", praised, blamed) == [[1.0, Skip.JUDGE_FAILED, 0.0], [-1.0, 1.0]]

"""What a reward is measured against (`training.advantage`).

                   a turn of a conversation                 a step of an attempt at a task
    raw            its reward                               the outcome
    baseline       minus the line's running mean            as group; alone: minus the line's running mean
    group          among the answers to the same request    the outcome, among the attempts of the group
    session_gae    with the rewards that followed           step scores, and the outcome at the end, that followed
    step_wise      its reward: there is no outcome          outcome + step score, among the k-th steps of all attempts

Chooses the numbers that a formula of `advantages.py` is about. A new measure is two functions and a line in `MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.credit import advantages
from openclaw_rl.types import Attempt, Baseline, Skip, TurnOutline


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The reward of turn `index`, and what is known beside it.

    `turns` and `rewards` are those of the whole session, where a measure asks for them; a turn that nobody reacted to,
    or whose judge failed, has no reward.
    """

    index: int
    reward: float
    baseline: Baseline
    turns: Mapping[int, TurnOutline] = field(default_factory=dict)
    rewards: Mapping[int, float] = field(default_factory=dict)
    gamma: float = 1.0
    lam: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCase:
    """The attempts of a complete group that ended with a reward, and what is known beside them."""

    attempts: Sequence[Attempt]
    baseline: Baseline
    gamma: float = 1.0
    lam: float = 1.0


GroupAdvantages = Sequence[Sequence[float | Skip]]
"""For each attempt and each of its steps the advantage, or why it teaches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """`needs_session`: it looks at the other turns too. `needs_end`: also at those that are still to come."""

    advantage: Callable[[Case], float]
    among_attempts: Callable[[GroupCase], GroupAdvantages]
    needs_session: bool = False
    needs_end: bool = False


def _raw(case: Case) -> float:
    return advantages.raw(case.reward)


def _baseline(case: Case) -> float:
    return advantages.against_baseline(case.reward, case.baseline)


def _group(case: Case) -> float:
    """Among the answers to the same request (`n` choices, or one that was asked for again) that have a reward."""
    digest = case.turns[case.index].request_digest
    siblings = {index: reward for index, reward in case.rewards.items() if case.turns[index].request_digest == digest}
    rewards = list((siblings | {case.index: case.reward}).items())
    normalised = advantages.group_normalised([reward for _, reward in rewards])
    return next(value for (index, _), value in zip(rewards, normalised, strict=True) if index == case.index)


def _session_gae(case: Case) -> float:
    """Along the conversation as it went on from this turn. A turn without a reward passes on what followed it."""
    line = line_from(case.index, case.turns)
    rewards = [case.reward, *(case.rewards.get(index, 0.0) for index in line[1:])]
    return advantages.session_gae(rewards, gamma=case.gamma, lam=case.lam)[0]


def line_from(index: int, turns: Mapping[int, TurnOutline]) -> list[int]:
    """The turn and the main turns after it. Where a conversation forks, the newest branch is the one that it took."""
    newest_child = {turn.parent: at for at, turn in sorted(turns.items()) if turn.kind == "main"}
    line, at = [], index if index in turns else None
    while at is not None:
        line.append(at)
        at = newest_child.get(at)
    return line


def _each_step(attempts: Sequence[Attempt], values: Sequence[float | Skip]) -> GroupAdvantages:
    return [[value] * len(one.steps) for one, value in zip(attempts, values, strict=True)]


def _raw_attempts(case: GroupCase) -> GroupAdvantages:
    return _each_step(case.attempts, [one.reward for one in case.attempts])


def _group_attempts(case: GroupCase) -> GroupAdvantages:
    """A_i = (r_i − mean) / deviation. An attempt that was meant to be alone keeps its reward."""
    rewards = [one.reward for one in case.attempts]
    if len(set(rewards)) > 1:
        return _each_step(case.attempts, advantages.group_normalised(rewards))
    is_alone = all(one.episode.group_size == 1 for one in case.attempts)
    return _each_step(case.attempts, rewards if is_alone else [Skip.SAME_OUTCOME] * len(rewards))


def _baseline_attempts(case: GroupCase) -> GroupAdvantages:
    """The other attempts are the best baseline there is; the running mean stands in where there are none."""
    if any(one.episode.group_size > 1 for one in case.attempts):
        return _group_attempts(case)
    measured = [advantages.against_baseline(one.reward, case.baseline) for one in case.attempts]
    return _each_step(case.attempts, measured)


def _gae_attempts(case: GroupCase) -> GroupAdvantages:
    found = []
    for one in case.attempts:
        rewards = [step.score or 0.0 for step in one.steps]
        if rewards:
            rewards[-1] += one.reward
        found.append(advantages.session_gae(rewards, gamma=case.gamma, lam=case.lam))
    return found


def _step_wise_attempts(case: GroupCase) -> GroupAdvantages:
    worth = [[None if step.score is None else one.reward + step.score for step in one.steps] for one in case.attempts]
    return [
        [
            advantage if advantage is not None else Skip.JUDGE_FAILED if value is None else Skip.SAME_OUTCOME
            for advantage, value in zip(measured, own, strict=True)
        ]
        for measured, own in zip(advantages.step_wise(worth), worth, strict=True)
    ]


MEASURES: Mapping[str, Measure] = {
    "raw": Measure(advantage=_raw, among_attempts=_raw_attempts),
    "baseline": Measure(advantage=_baseline, among_attempts=_baseline_attempts),
    "group": Measure(advantage=_group, among_attempts=_group_attempts, needs_session=True),
    "session_gae": Measure(advantage=_session_gae, among_attempts=_gae_attempts, needs_session=True, needs_end=True),
    "step_wise": Measure(advantage=_raw, among_attempts=_step_wise_attempts),
}

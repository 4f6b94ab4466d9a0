"""What the reward of one turn of a conversation is measured against (`training.advantage`).

Chooses the numbers of a session that a formula of `advantages.py` is about. A new measure is a function and one line
in `MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from openclaw_rl.credit import advantages
from openclaw_rl.types import Baseline, TurnOutline


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
class Measure:
    """`needs_session`: it looks at the other turns too. `needs_end`: also at those that are still to come."""

    advantage: Callable[[Case], float]
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


MEASURES: Mapping[str, Measure] = {
    "raw": Measure(advantage=_raw),
    "baseline": Measure(advantage=_baseline),
    "group": Measure(advantage=_group, needs_session=True),
    "session_gae": Measure(advantage=_session_gae, needs_session=True, needs_end=True),
    # A conversation has no outcome and no other attempts to compare its steps with; environments bring both.
    "step_wise": Measure(advantage=_raw),
}

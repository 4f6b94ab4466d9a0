"""How far an attempt came -> its reward.

    correct    2a − 1 for the share a that is right: 1 for all of it, −1 for nothing
    shaped     the same where all is right; otherwise min(−0.6, −1 + 0.05·(n − 2)) for n calls, so that an attempt which
               used its tools is better than one that guessed
    a path     package.module:name or file.py:name, a function of an `Achieved`

`shaped` is the reward of the published tool-call agent without its gaps: there every call counts, also one that
failed and the same one again, so that calling anything over and over pays. Here only different calls that worked count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.envs.toolcall.tasks import Deeds
from openclaw_rl.errors import EnvError
from openclaw_rl.plugins import load_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """How much of a task is right, and what the attempt left behind."""

    share: float
    deeds: Deeds

    @property
    def num_useful_calls(self) -> int:
        """Different calls that worked."""
        return len({(c.name, json.dumps(c.arguments, sort_keys=True)) for c in self.deeds.calls if not c.is_error})


Reward = Callable[[Achieved], float]


def correct(achieved: Achieved) -> float:
    """From −1 for nothing to 1 for all."""
    return 2.0 * achieved.share - 1.0


def shaped(achieved: Achieved) -> float:
    """1 for all; below that, more for attempts that used their tools."""
    if achieved.share >= 1.0:
        return 1.0
    return min(-0.6, -1.0 + 0.05 * (achieved.num_useful_calls - 2))


REWARDS: Mapping[str, Reward] = {"correct": correct, "shaped": shaped}


def make_reward(name: str) -> Reward:
    """A reward by its name, or by the path of a function; `ConfigError` where there is none."""
    if name in REWARDS:
        return REWARDS[name]
    _, function = load_named(name, "reward")

    def of_the_user(achieved: Achieved) -> float:
        try:
            reward = float(function(achieved))
        except Exception as error:  # code of others may raise anything
            raise EnvError(f"the reward {name} raised {error!r}") from error
        if not math.isfinite(reward):
            raise EnvError(f"the reward {name} gave {reward}; a reward is a finite number")
        return reward

    return of_the_user

"""What a verifier wrote -> rewards by their names, `reward` among them. What is missing, empty or no finite number is a
failure of the verifier and never 0.

    reward.json     {"reward": 0.5, "style": 1}, or a number
    reward.txt      0.5

Harbor reads reward.json where there are both. Here they must agree: an agent's program that a test runs could write the
one that the test does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from openclaw_rl.errors import EnvError
from openclaw_rl.types import Json

REWARD = "reward"


def read_rewards(as_json: bytes | None, as_text: bytes | None) -> dict[str, float]:
    """The contents of the two files; `EnvError` where they hold no reward."""
    if as_json is None and as_text is None:
        raise EnvError("the verifier left no reward: neither reward.json nor reward.txt is in /logs/verifier")
    rewards = None if as_json is None else _from_json(as_json)
    if as_text is None:
        assert rewards is not None
        return rewards
    plain = _from_text(as_text)
    if rewards is not None and rewards[REWARD] != plain:
        raise EnvError(f"the verifier left two rewards: {rewards[REWARD]:g} in reward.json and {plain:g} in reward.txt")
    return {REWARD: plain} if rewards is None else rewards


def _from_json(data: bytes) -> dict[str, float]:
    try:
        raw: Json = json.loads(data)
    except (ValueError, RecursionError):
        raise EnvError("the verifier's reward.json is not JSON") from None
    named = raw if isinstance(raw, dict) else {REWARD: raw}
    wrong = [name for name, value in named.items() if not _is_finite(value)]
    if wrong or not named:
        raise EnvError(f"the verifier's reward.json has no finite number at {', '.join(wrong) or 'all'}"[:500])
    rewards = {name: float(value) for name, value in named.items()}
    if REWARD not in rewards:
        if len(rewards) > 1:
            raise EnvError(f"the verifier's reward.json says {', '.join(rewards)}, and not which is the reward"[:500])
        rewards[REWARD] = next(iter(rewards.values()))
    return rewards


def _is_finite(value: Json) -> bool:
    if not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _from_text(data: bytes) -> float:
    try:
        value = float(data)
    except ValueError:
        raise EnvError("the verifier's reward.txt is empty or no number") from None
    if not math.isfinite(value):
        raise EnvError(f"the verifier's reward.txt says {value}, which is no finite number")
    return value


def combined(steps: Sequence[Mapping[str, float]], strategy: Literal["mean", "final"]) -> dict[str, float]:
    """The rewards of the steps that were graded as those of the whole; a name that a step does not have counts 0."""
    if strategy == "final":
        return dict(steps[-1])
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: sum(step.get(name, 0.0) for step in steps) / len(steps) for name in names}


def is_enough(rewards: Mapping[str, float], least: Mapping[str, float]) -> bool:
    """Whether the next step is gone on to."""
    return all(rewards.get(name, -math.inf) >= threshold for name, threshold in least.items())

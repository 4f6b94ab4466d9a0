"""What a verifier wrote, as rewards: what is missing, empty or no number is its failure, and never 0."""

from __future__ import annotations

import pytest

from openclaw_rl.envs.tasks.harbor.rewards import combined, is_enough, read_rewards
from openclaw_rl.errors import EnvError


@pytest.mark.parametrize(
    ("as_json", "as_text", "rewards"),
    [
        (b'{"reward": 0.5, "style": 1}', None, {"reward": 0.5, "style": 1.0}),
        (b"0.25", None, {"reward": 0.25}),
        (b'{"accuracy": 0.7}', None, {"accuracy": 0.7, "reward": 0.7}),
        (b'{"reward": true}', None, {"reward": 1.0}),
        (None, b" 1\n", {"reward": 1.0}),
        (None, b"-3.5", {"reward": -3.5}),
        (b'{"reward": 1, "tests": 4}', b"1.0\n", {"reward": 1.0, "tests": 4.0}),
    ],
)
def test_rewards_are_read(as_json: bytes | None, as_text: bytes | None, rewards: dict[str, float]) -> None:
    assert read_rewards(as_json, as_text) == rewards


@pytest.mark.parametrize(
    ("as_json", "as_text", "why"),
    [
        (None, None, "neither reward.json nor reward.txt"),
        (b"", None, "not JSON"),
        (b"{}", None, "no finite number"),
        (b'{"reward": NaN}', None, "no finite number at reward"),
        (b'{"reward": 1e999}', None, "no finite number"),
        (b'{"reward": 1' + b"0" * 400 + b"}", None, "no finite number"),
        (b'{"reward": "1"}', None, "no finite number"),
        (b'{"reward": 1, "style": null}', None, "no finite number at style"),
        (b'[{"reward": 1}]', None, "no finite number"),
        (b'{"a": 1, "b": 2}', None, "says a, b, and not which is the reward"),
        (b"[" * 100_000, None, "not JSON"),
        (b"\xff", None, "not JSON"),
        (None, b"", "empty or no number"),
        (None, b"passed", "empty or no number"),
        (None, b"nan", "no finite number"),
        (None, b"\xff", "empty or no number"),
        (b'{"reward": 0}', b"1", "two rewards: 0 in reward.json and 1 in reward.txt"),
        (b"broken", b"1", "not JSON"),
        (b"1", b"", "empty or no number"),
    ],
)
def test_what_is_no_reward_is_a_failure(as_json: bytes | None, as_text: bytes | None, why: str) -> None:
    with pytest.raises(EnvError) as caught:
        read_rewards(as_json, as_text)
    assert why in str(caught.value)


def test_rewards_of_steps_become_one() -> None:
    steps = [{"reward": 1.0, "style": 1.0}, {"reward": 0.5}]
    assert combined(steps, "mean") == {"reward": 0.75, "style": 0.5}
    assert combined(steps, "final") == {"reward": 0.5}


def test_the_next_step_is_gone_on_to_where_all_thresholds_are_reached() -> None:
    assert is_enough({"reward": 0.0}, {})
    assert is_enough({"reward": 0.5}, {"reward": 0.5})
    assert not is_enough({"reward": 0.49}, {"reward": 0.5})
    assert not is_enough({"reward": 1.0, "style": 0.1}, {"reward": 1.0, "style": 0.2})
    assert not is_enough({"reward": 1.0}, {"style": -5.0})

"""Rewards: by what is right, shaped by the use of tools, or by a function of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.toolcall.rewards import Achieved, make_reward
from openclaw_rl.envs.toolcall.tasks import Called, Deeds
from openclaw_rl.errors import ConfigError, EnvError


def achieved(share: float, *calls: Called) -> Achieved:
    return Achieved(share=share, deeds=Deeds(calls=calls))


def called(number: int, *, is_error: bool = False) -> Called:
    return Called(name="look", arguments={"at": number}, is_error=is_error)


def test_the_usual_reward_runs_from_minus_one_to_one() -> None:
    reward = make_reward("correct")
    assert [reward(achieved(share)) for share in (0.0, 0.25, 1.0)] == [-1.0, -0.5, 1.0]


def test_the_shaped_reward_prefers_an_attempt_that_used_its_tools() -> None:
    reward = make_reward("shaped")
    assert reward(achieved(1.0)) == reward(achieved(1.0, called(1))) == 1.0
    wrong = [reward(achieved(0.0, *map(called, range(count)))) for count in (0, 1, 2, 6, 10, 30)]
    assert wrong == pytest.approx([-1.1, -1.05, -1.0, -0.8, -0.6, -0.6])


def test_calls_that_failed_and_the_same_one_again_earn_nothing() -> None:
    reward = make_reward("shaped")
    spam = [called(1)] * 20 + [called(number, is_error=True) for number in range(20)]
    assert reward(achieved(0.5, *spam)) == reward(achieved(0.0, called(1)))


def test_a_reward_of_ones_own_sees_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(
        "def few(achieved):\n    return achieved.share - 0.1 * len(achieved.deeds.calls)\n"
        "def broken(achieved):\n    return 1 / 0\n"
        "def endless(achieved):\n    return float('inf')\n"
    )
    assert make_reward(f"{tmp_path}/rewards.py:few")(achieved(1.0, called(1))) == pytest.approx(0.9)
    with pytest.raises(EnvError, match="broken raised ZeroDivisionError"):
        make_reward(f"{tmp_path}/rewards.py:broken")(achieved(1.0))
    with pytest.raises(EnvError, match="gave inf"):
        make_reward(f"{tmp_path}/rewards.py:endless")(achieved(1.0))


def test_a_reward_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="reward 'shapd' is not of the form"):
        make_reward("shapd")

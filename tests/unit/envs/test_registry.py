"""Environments and harnesses are found by their name, or by an import path; a typo is answered with the names."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.registry import ENVIRONMENTS, HARNESSES, EnvMeans, make_environment, make_harness
from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.errors import ConfigError

MEANS = EnvMeans(rollout=RolloutConfig(), sandbox=cast("Sandbox", None), cache=Path())


@pytest.mark.parametrize(
    ("make", "kind", "known"), [(make_environment, "environment", ENVIRONMENTS), (make_harness, "harness", HARNESSES)]
)
def test_a_name_that_is_none_is_answered_with_those_that_are(make: object, kind: str, known: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"there is no {kind} 'termnal'") as caught:
        make("termnal", MEANS)  # type: ignore[operator]
    assert all(name in str(caught.value) for name in known)


def test_an_import_path_names_one_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    def __init__(self, means):\n        self.means = means\n")
    made = make_harness(f"{tmp_path}/mine.py:Mine", MEANS)
    assert vars(made) == {"means": MEANS}

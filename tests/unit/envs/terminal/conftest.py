"""The terminal track with real boxes, where this machine can make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.terminal.environment import TerminalEnvironment
from tests.fakes.boxes import sandbox_or_skip


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapSandbox:
    return sandbox_or_skip(tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(sandbox: BubblewrapSandbox, cache: Path) -> TerminalEnvironment:
    return TerminalEnvironment(rollout=RolloutConfig(max_steps=6), sandbox=sandbox, cache=cache)

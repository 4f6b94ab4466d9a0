"""What tests of tools share: boxes, where this machine can make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.sandbox.making import make_sandbox


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    made = make_sandbox(tmp_path / "boxes")
    if lacks := made.lacks():
        pytest.skip(lacks)
    return made

"""Which sandbox this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox


def make_sandbox(scratch: Path, *, kind: Literal["auto", "bubblewrap", "docker"] = "auto") -> Sandbox:
    """A sandbox whose boxes keep what they need on disk under `scratch`."""
    return BubblewrapSandbox(scratch)

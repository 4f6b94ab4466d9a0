"""OpenClaw-RL: an agent that gets better because people talk to it. Start reading at `pipeline.py`."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["inspect_sessions"]


def inspect_sessions(path: str | os.PathLike[str]) -> dict[str, list[dict[str, Any]]]:
    """The turns of every session under its id, in order; the `type` of each is main or side.

    `path` is a folder or file of `openclaw-rl rollouts collect`, or a data directory. What else a turn has is described
    in docs/judging.md.
    """
    # By name, because importing the package must stay as cheap as this file.
    reader = import_module("openclaw_rl.cli.learn.rollout_files")
    return dict(reader.inspect_sessions(Path(path)))

"""The programs that people already have, at the versions tried: those of the harnesses, and two more."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.envs.harness.programs import Program, ProgramShelf

SHELF = ProgramShelf(Path.home() / ".cache" / "openclaw-rl" / "clients")
"""Where harnesses look for theirs, so that nothing is fetched twice."""

PI = Program(command="pi", registry="npm", packages=("@mariozechner/pi-coding-agent@0.73.1",))
AIDER = Program(command="aider", registry="pypi", packages=("aider-chat==0.86.2",))

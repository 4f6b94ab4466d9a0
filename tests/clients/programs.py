"""The programs that people already have, at the versions tried: those of the harnesses, and two more."""

from __future__ import annotations

from openclaw_rl.config import load_config
from openclaw_rl.envs.harness.programs import Program, ProgramShelf
from openclaw_rl.envs.registry import programs_in
from openclaw_rl.wiring.envs import make_means

SHELF = ProgramShelf(programs_in(make_means(load_config().config).cache))
"""Where harnesses look for theirs, so that nothing is fetched twice."""

PI = Program(command="pi", registry="npm", packages=("@mariozechner/pi-coding-agent@0.73.1",))
AIDER = Program(command="aider", registry="pypi", packages=("aider-chat==0.86.2",))

"""`openclaw-rl env install`: fetches the program of an agent of other people's, so that boxes here can show it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from openclaw_rl.cli.screen import make_console, progress
from openclaw_rl.config import Config
from openclaw_rl.envs.harness.program import ProgramHarness
from openclaw_rl.envs.registry import make_harness
from openclaw_rl.protocols import Harness
from openclaw_rl.wiring.envs import make_means


def install_harness(config: Config, name: str) -> None:
    """What is there already is not fetched again."""
    harness = make_harness(name, make_means(config))
    console = make_console()
    with progress(show=True, beside=console) as bars, ThreadPoolExecutor(1) as thread:  # so that the bar moves
        bars.add_task(f"installing {name}, which may take minutes", total=None)
        thread.submit(_install, harness).result()
    console.print(f"{name} is ready", markup=False)


def _install(harness: Harness) -> None:
    if isinstance(harness, ProgramHarness):
        harness.install()
    harness.programs()

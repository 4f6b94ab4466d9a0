"""What tests of many rooms share: the embedded model's files and its renderer, and a real PostgreSQL."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from openclaw_rl.config import load_config
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from tests.postgres import CannotStart, Postgres, running

# What a shell starts in the background ignores Ctrl-C, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of processes. Where the environment forbids bytecode, each would compile the package anew: 0.4 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Workers of one run share the cores. Tiny models gain nothing from a second thread, and it waits by spinning.
if num_workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // num_workers)))

# The same examples in every run, and none of them timed: the machine may be busy.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def model() -> Path:
    """The folder of the embedded model; `make setup` has fetched it."""
    return resolve_model(load_config().config.model).path


@pytest.fixture(scope="session")
def renderer(model: Path) -> Renderer:
    return load_renderer(model, "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Started with the first test that wants it; those are skipped, with the reason, where it cannot be."""
    try:
        with running() as server:
            yield server
    except CannotStart as reason:
        pytest.skip(f"no PostgreSQL here: {reason}")

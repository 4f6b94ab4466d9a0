"""Every engine, as a fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.config import load_config
from openclaw_rl.model.files import resolve_model
from tests.engines.bench import Bench, attached, files, started_here
from tests.tiny import build_tiny_model

ENGINES = (
    "embedded",
    "sglang",
    "vllm protocol",
    pytest.param("vllm", marks=(pytest.mark.engines, pytest.mark.timeout(1200))),
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def bench(
    request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    """One for the tests of a module, which leave it as they found it: the base live and alone."""
    kind, place = request.param, tmp_path_factory.mktemp("run")
    if kind == "embedded":
        model, settings = files(tiny), ("engine.threads=1",)
        async with started_here(kind, model, place, *settings, window=model.context_window, tolerance=1e-4) as made:
            yield made
    elif kind == "vllm":
        model = resolve_model(load_config(env={}).config.model)
        settings = ("engine.context_window=2048",)
        async with started_here(kind, model, place, *settings, window=2048, tolerance=2e-3, timeout_s=600.0) as made:
            yield made
    else:
        async with attached(kind.partition(" ")[0], tiny, place) as made:
            yield made

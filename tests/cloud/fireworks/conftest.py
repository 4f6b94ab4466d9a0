"""A local service that speaks the protocol, and the real SDK; `make test-cloud` installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.fireworks.services import KEY, LocalFireworks
from tests.tiny import build_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert importlib.util.find_spec("fireworks"), "make test-cloud installs the SDK and puts it on the path"
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def _running(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFireworks]:
    service = LocalFireworks(tiny, tmp_path_factory.mktemp("service"))
    service.start()
    yield service
    service.kill()


@pytest.fixture
def service(_running: LocalFireworks, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFireworks]:
    """One for the tests of a module, with nothing wrong."""
    monkeypatch.setenv("FIREWORKS_API_KEY", KEY)
    if _running.process is None:
        _running.start()
    yield _running
    if _running.process is not None:
        _running.order(down=False, faults=[], loading=1, most=20, without=[])

"""A local service that speaks the protocol, and the real SDK; `make test-cloud` installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.services import KEY, LocalService
from tests.tiny import build_tiny_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cloud)
            item.add_marker(pytest.mark.timeout(300))
            for kind in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning", "DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))  # the SDK leaves its sockets to the end


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert importlib.util.find_spec("tinker"), "make test-cloud installs the SDK and puts it on the path"
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def _running(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    service = LocalService(tiny, tmp_path_factory.mktemp("service"))
    service.start()
    yield service
    service.kill()


@pytest.fixture
def service(_running: LocalService, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalService]:
    """One for the tests of a module, with nothing wrong."""
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    if _running.process is None:
        _running.start()
    yield _running
    if _running.process is not None:
        _running.order(down=False, slow_s=0, faults=[], fails={}, without=[])

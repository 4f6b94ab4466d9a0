"""What the tests of all programs begin with: a server that answers by the script of the test's module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a module; `SCRIPT` of the module is the setting that says what it answers."""
    with Server(tmp_path_factory.mktemp("server") / "data", request.module.SCRIPT) as running:
        yield running

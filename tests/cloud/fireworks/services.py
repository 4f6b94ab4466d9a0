"""The local service of the other protocol, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.cloud.services import LocalService

KEY = "fw-test"


class LocalFireworks(LocalService):
    """Speaks Fireworks' serverless training protocol at `url`."""

    name, module, scheme = "fireworks", "tests.fakes.fireworks.server", "fireworks://"

    def folder_of(self, uri: str) -> Path:
        return self._state / "states" / uri.removeprefix(self.scheme).replace("/", "_")

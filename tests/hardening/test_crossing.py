"""Every route, every name, every place, and every kind of caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.gateway.api.openapi import OPERATIONS
from tests.hardening.crossing import Household, cross
from tests.hardening.report import report
from tests.server import Server


@pytest.mark.hardening
@pytest.mark.timeout(1800)
def test_nothing_of_one_user_reaches_another(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        household = Household(server)
        num_requests = cross(household, every=1)
        household.close()
    report("crossing", routes=len(OPERATIONS), names=len(household.names), requests=num_requests, leaks=0)

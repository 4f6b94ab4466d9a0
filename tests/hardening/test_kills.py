"""260 kills of a real server or its engine under twenty streams, on one growing data directory for each.

The short form is in tests/faults.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from openclaw_rl.protocols import Renderer
from tests.faults.test_kills import EVERY_PASS, kill_engine, kill_gateway
from tests.hardening.report import report

NUM_KILLS = 200
NUM_ENGINE_KILLS = 60


@pytest.mark.hardening
@pytest.mark.timeout(3600)
async def test_nothing_that_was_delivered_is_lost(tmp_path: Path, renderer: Renderer) -> None:
    began = time.monotonic()
    delivered = await kill_gateway(tmp_path, renderer, places=EVERY_PASS, num_random=NUM_KILLS - len(EVERY_PASS))
    assert delivered > 5 * NUM_KILLS
    report("kills", kills=NUM_KILLS, delivered=delivered, lost=0, seconds=round(time.monotonic() - began))


@pytest.mark.hardening
@pytest.mark.timeout(1200)
async def test_an_engine_that_dies_fails_no_request(tmp_path: Path, renderer: Renderer) -> None:
    began = time.monotonic()
    delivered = await kill_engine(tmp_path, renderer, num_kills=NUM_ENGINE_KILLS)
    report("engine kills", kills=NUM_ENGINE_KILLS, delivered=delivered, seconds=round(time.monotonic() - began))

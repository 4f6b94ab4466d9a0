"""1,000 logs that were cut, zeroed, flipped or overwritten somewhere; the short form is in tests/faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.test_store_faults import tear_logs
from tests.hardening.report import report

NUM_IMAGES = 1000


@pytest.mark.hardening
@pytest.mark.timeout(900)
async def test_each_gives_back_an_exact_prefix(tmp_path: Path) -> None:
    prefixes = await tear_logs(tmp_path, num_images=NUM_IMAGES)
    assert prefixes > 20
    report("torn logs", logs=NUM_IMAGES, exact=NUM_IMAGES, different_prefixes=prefixes)

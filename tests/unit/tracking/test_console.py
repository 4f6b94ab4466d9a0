"""One line for each step, once it is known what became of its version."""

from __future__ import annotations

import logging

import pytest

from openclaw_rl.tracking.console import ConsoleObserver
from tests.factories.events import step, version


def test_a_step_is_one_line_with_the_fate_of_its_version(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    said: list[str] = []
    console = ConsoleObserver(said.append)
    console.stepped(step())
    console.changed(version(state="candidate"))
    console.changed(version(2))
    console.changed(version(line="ann"))
    assert said == []
    console.changed(version())
    console.changed(version(2))  # rolled back later: no step is told twice
    console.close()
    assert said == ["step 3 of local: loss 0.41 (rl 0.12, opd 0.29), reward −0.50 ± 0.87, 4 samples, 9.8 s → v3 live"]
    assert [record.getMessage() for record in caplog.records] == said


def test_rejected_versions_say_why_and_waiting_ones_that_they_wait() -> None:
    said: list[str] = []
    console = ConsoleObserver(said.append)
    only_rl = step(
        1, line="ann", metrics={"loss/total": -0.0012, "loss/binary": -0.0012}, sample_ids=("a",), replayed_ids=()
    )
    console.stepped(only_rl)
    console.changed(version(1, "rejected", line="ann", reason="KL 1.4 > 1.0"))
    console.stepped(step(2, metrics={}))
    console.stepped(step(3, state="discarded", metrics={}, reason="nan"))
    console.stepped(step(4, metrics={}))
    console.close()
    assert said == [
        "step 1 of ann: loss −0.0012 (rl −0.0012), 1 sample → v1.ann rejected: KL 1.4 > 1.0",
        "step 2 of local: 4 samples → v2 not released yet",
        "step 4 of local: 4 samples → v4 not released yet",
    ]

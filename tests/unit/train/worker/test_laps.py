"""Every second of an order is counted once."""

from __future__ import annotations

from openclaw_rl.train.worker.laps import Laps


def test_laps_add_up_and_what_is_inside_of_another_counts_there() -> None:
    now = 10.0
    laps = Laps(lambda: now)
    for seconds in (1.0, 2.0):
        with laps.of("outer"):
            now += seconds
            with laps.of("inner"):
                now += 0.25
            now += 0.5
    now += 4.0
    assert laps.seconds("outer") == 4.0
    assert laps.seconds("outer", "inner", "never") == 4.5
    assert laps.metrics() == {"time/outer": 4.0, "time/inner": 0.5, "time/order": 8.5}


def test_a_lap_that_fails_counts_too() -> None:
    now = 0.0
    laps = Laps(lambda: now)
    try:
        with laps.of("load"):
            now += 1.0
            raise ValueError
    except ValueError:
        pass
    assert laps.seconds("load") == 1.0

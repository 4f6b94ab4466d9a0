"""The pure parts of benchmarks/scale.py and simulate.py: which parts there are, and a simulation that is checked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import simulate
from benchmarks.scale import PARTS, part
from benchmarks.simulate import MEASURED_POINT, SimulatedEngine, Size, Station, check, decode_pace

SMALL = Size(users=200, engines=20, trainers=2, seconds=600.0)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_names_its_figures(name: str) -> None:
    one = part(name)
    assert callable(one.measure)
    assert all(label for label, _ in one.FIGURES.values())


def test_a_station_serves_whoever_comes_first_with_what_it_has() -> None:
    station = Station("two", 2)
    assert [station.serve(0.0, 1.0) for _ in range(3)] == [1.0, 1.0, 2.0]
    assert station.serve(5.0, 1.0) == 6.0
    assert station.load(8.0) == 0.25


def test_an_engine_brings_each_adapter_once_as_long_as_there_is_room() -> None:
    engine = SimulatedEngine(places=1, room=2, bring_s=10.0, pace=decode_pace(1.0, 0.0, 1.0), prefill_s=0.0)
    assert engine.answer(0.0, 1, 3) == (11.0, 13.0)
    assert engine.answer(20.0, 1, 1) == (21.0, 21.0)
    engine.answer(30.0, 2, 1)
    engine.answer(50.0, 3, 1)
    assert engine.answer(70.0, 1, 1) == (81.0, 81.0), "its adapter was the one used longest ago"
    assert engine.num_brought == 4


def test_places_that_are_taken_are_waited_for() -> None:
    engine = SimulatedEngine(places=1, room=9, bring_s=0.0, pace=decode_pace(1.0, 0.0, 1.0), prefill_s=0.0)
    assert [engine.answer(0.0, user, 5)[1] for user in range(3)] == [5.0, 10.0, 15.0]


def test_the_same_seed_gives_the_same_hour_and_more_people_more_load() -> None:
    one, again, double = (
        simulate.simulate(SMALL),
        simulate.simulate(SMALL),
        simulate.simulate(replace(SMALL, users=400)),
    )
    assert one == again
    assert all(double.loads[name] > load for name, load in one.loads.items())
    assert one.first == max(one.loads, key=lambda name: one.loads[name])
    assert one.dollars_a_user_and_day == pytest.approx(2 * double.dollars_a_user_and_day, abs=1e-3)


def test_fewer_trainers_make_lessons_wait() -> None:
    assert simulate.simulate(replace(SMALL, trainers=1)).lesson_p99_s >= simulate.simulate(SMALL).lesson_p99_s


def test_the_model_is_near_the_two_points_that_were_measured() -> None:
    checked = check(MEASURED_POINT)
    assert [one.name for one in checked] == ["answers_per_s_8", "answers_per_s_32"]
    for one in checked:
        assert 0.4 <= one.ratio <= 2.5, f"{one.name}: {one.ratio:.2f}"

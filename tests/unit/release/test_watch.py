"""A version that does worse than its parent is told from one that has a bad day, and goes."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from openclaw_rl.config import ReleaseConfig
from openclaw_rl.errors import EngineRefused
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.watch import MAX_TURNS, Watch, alarm, counts, evidence
from openclaw_rl.types import ServedTurn, Version
from tests.fakes.release import VERSION, Rows

LIMITS = ReleaseConfig(alarm_odds=1000.0, watch_turns=50, min_distinct=0.35)
VARIED, LOOP = tuple(range(20)), (1, 2) * 10


def turn(score: int | None = None, *, failed: bool = False, ids: tuple[int, ...] = VARIED) -> ServedTurn:
    return ServedTurn(finished_at=0.0, token_ids=ids, failed=failed, score=score)


LIKED, DISLIKED, NEUTRAL, UNJUDGED = turn(1), turn(-1), turn(0), turn()


def test_what_users_say() -> None:
    parent = [LIKED] * 14 + [DISLIKED] * 6
    assert alarm([DISLIKED] * 9, parent, LIMITS) == (
        "9 of its 9 answers were not what the user wanted, and 6 of 20 of those of its parent"
    )
    assert alarm([DISLIKED] * 3, parent, LIMITS) == "", "three in a row happen"
    assert alarm([DISLIKED] * 12, [DISLIKED] * 20, LIMITS) == "", "its parent did no better"
    assert alarm([DISLIKED, NEUTRAL, UNJUDGED] * 3, parent, LIMITS) == "", "three of six"


def test_failures_and_empty_answers() -> None:
    assert "3 of its 4 answers failed or were empty" in alarm(
        [UNJUDGED, *[turn(failed=True)] * 3], [UNJUDGED] * 50, LIMITS
    )
    assert alarm([*[turn(failed=True)] * 2, *[UNJUDGED] * 9], [UNJUDGED] * 50, LIMITS) == ""


def test_repetition() -> None:
    assert "repeated themselves" in alarm([turn(ids=LOOP)] * 3, [UNJUDGED] * 50, LIMITS)
    assert alarm([turn(ids=LOOP[:6])] * 9, [UNJUDGED] * 50, LIMITS) == "", "too short to tell"
    assert alarm([turn(ids=LOOP)] * 5, [turn(ids=LOOP)] * 50, LIMITS) == ""


def test_repeated_calls() -> None:
    calls, again = (replace(UNJUDGED, repeats_call=found) for found in (False, True))
    assert alarm([UNJUDGED, calls, again, again, again], [calls] * 50, LIMITS) == (
        "3 of its 4 answers repeated a tool call with nothing new in between, and 0 of 50 of those of its parent"
    ), "an answer without a call says nothing"
    assert alarm([again] * 5, [again] * 50, LIMITS) == ""


def long(times: float, score: int | None = None) -> ServedTurn:
    """So many times as long as nine of ten answers of `USUAL`."""
    return turn(score, ids=tuple(range(round(90 * times))))


USUAL = [turn(ids=tuple(range(10 * number))) for number in range(1, 11)] * 5
MOST = LIMITS.max_length * 10 / 9


def test_answers_that_are_much_longer() -> None:
    grown = long(MOST + 0.1)
    assert alarm([grown] * 5 + [long(2, -1)], USUAL, LIMITS) == (
        "6 of its 6 answers were much longer than those before, and 0 of 50 of those of its parent"
    )
    assert alarm([long(MOST)] * 20 + [long(MOST, -1)], USUAL, LIMITS) == "", "as much as the gate allows"
    assert alarm([grown] * 3 + [long(2, -1)], USUAL[:9], LIMITS) == "", "too few to tell"


def test_who_asked_for_longer_answers_gets_them() -> None:
    assert alarm([long(9)] * 50, USUAL, LIMITS) == "", "nobody minds"
    assert alarm([long(9, 1), long(9)] * 20 + [long(9, -1)] * 2, USUAL, LIMITS) == "", "they are liked"
    assert alarm([long(9, 1)] + [long(9)] * 9 + [long(9, -1)] * 2, USUAL, LIMITS), "by one of three"
    liked = counts([long(9), long(9, 1)], USUAL, LIMITS)[-1]
    assert (liked.num, liked.of) == (1, 2)
    short = [turn(ids=VARIED)] * 50
    complaint = [long(1.5)] * 5 + [long(1.5, -1)]
    assert alarm(complaint, short, LIMITS), "the parent was brief"
    assert alarm(complaint, short, LIMITS, base=USUAL) == "", "the base model was not"
    grown = counts([long(9)] * 5, USUAL, LIMITS)[-1]
    assert (grown.kind.name, grown.num, grown.of, grown.is_alarm) == ("length", 5, 5, False)
    assert grown.odds > LIMITS.alarm_odds, "it is shown all the same"


def test_a_version_that_turns_bad_late_is_found_as_fast() -> None:
    parent = [LIKED] * 20
    assert alarm([LIKED] * 60 + [DISLIKED] * 4, parent, LIMITS)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_a_version_like_its_parent_is_hardly_ever_taken_for_a_bad_one(rate: float) -> None:
    drawn, alarms, num_turns = random.Random(0), 0, 0
    for _ in range(200):
        seen: list[bool] = []
        for _ in range(50):
            seen.append(drawn.random() < rate)
            num_turns += 1
            if evidence(seen, rate) >= math.log(1000):
                alarms += 1
                break
    assert alarms / num_turns <= 1 / 1000


class Log(Rows):
    def __init__(self, *versions: Version, served: dict[str, list[ServedTurn]]) -> None:
        super().__init__(*versions)
        self.turns, self.served = served, asyncio.Event()
        self.woken = {"watch": self.served}.__getitem__
        self.asked: list[tuple[str, float, int]] = []

    async def served_turns(self, line: str, label: str, *, since: float, limit: int) -> Sequence[ServedTurn]:
        self.asked.append((label, since, limit))
        return self.turns.get(label, [])


class Back:
    """Notes who went back to what; refuses what it is told to."""

    def __init__(self, *refused: int) -> None:
        self.went: list[tuple[str, int, str, int]] = []
        self.refused = refused
        self.done = asyncio.Event()

    async def __call__(self, line: str, number: int, *, reason: str, instead_of: int) -> str:
        if number in self.refused:
            raise EngineRefused("its files are gone")
        self.went.append((line, number, reason, instead_of))
        self.done.set()
        return f"v{number}"


FIRST = replace(VERSION, state="retired", gate={"parent": "v0"})
LIVE = replace(VERSION, number=2, parent=1, state="live", created_at=3.0, gate={"parent": "v1", "live_at": 5.0})


async def test_an_alarm_puts_the_parent_live_with_the_reason() -> None:
    log, back = Log(FIRST, LIVE, served={"v2": [DISLIKED] * 6, "v1": [LIKED] * 20}), Back()
    await Watch(cast("LearningStore", log), back, LIMITS).look()
    ((line, number, reason, instead_of),) = back.went
    assert (line, number, instead_of) == ("local", 1, 2)
    assert reason.startswith("6 of its 6 answers were not what the user wanted")
    assert log.asked == [("v2", 5.0, MAX_TURNS), ("v1", 0.0, 50), ("v0", 0.0, 50)], "since it went live"


OLDEST = replace(VERSION, number=1, state="retired", gate={"parent": "v0"})
OLD = replace(VERSION, number=2, parent=1, state="retired", gate={"parent": "v1"})
MIDDLE = replace(VERSION, number=4, parent=3, state="retired", gate={"parent": "v2"})
NOW = replace(VERSION, number=5, parent=4, state="live", gate={"parent": "v4", "live_at": 5.0})


@pytest.mark.parametrize(
    ("versions", "refused", "back_to"),
    [
        ((OLDEST, OLD, replace(MIDDLE, state="rolled_back"), NOW), (), 2),
        ((OLDEST, OLD, replace(MIDDLE, state="rejected"), NOW), (), 2),
        ((OLDEST, OLD, replace(MIDDLE, weights=None), NOW), (), 2),
        ((OLDEST, replace(OLD, state="rolled_back"), replace(MIDDLE, state="rolled_back", gate=None), NOW), (), 0),
        ((OLDEST, replace(OLD, state="rolled_back"), replace(MIDDLE, state="rejected"), NOW), (), 1),
        ((OLDEST, OLD, MIDDLE, NOW), (4,), 2),
        ((OLDEST, OLD, MIDDLE, NOW), (4, 2, 1), 0),
    ],
    ids=["bad", "rejected", "no files", "a row is missing", "two bad ones", "refused", "all refused"],
)
async def test_where_the_parent_cannot_serve_the_nearest_before_it_that_can_does(
    versions: Sequence[Version], refused: tuple[int, ...], back_to: int
) -> None:
    log, back = Log(*versions, served={"v5": [DISLIKED] * 6, "v4": [LIKED] * 20}), Back(*refused)
    await Watch(cast("LearningStore", log), back, LIMITS).look()
    assert [number for _, number, _, _ in back.went] == [back_to]


@pytest.mark.parametrize(
    ("parent", "refused"), [(replace(FIRST, state="rolled_back"), ()), (FIRST, (1,))], ids=["was bad too", "is gone"]
)
async def test_a_parent_that_cannot_serve_leaves_the_base_model(parent: Version, refused: tuple[int, ...]) -> None:
    log, back = Log(parent, LIVE, served={"v2": [DISLIKED] * 6, "v1": [LIKED] * 20}), Back(*refused)
    await Watch(cast("LearningStore", log), back, LIMITS).look()
    assert [number for _, number, _, _ in back.went] == [0]


async def test_what_is_long_the_base_model_tells_too() -> None:
    turns = {"v2": [long(1.5)] * 5 + [long(1.5, -1)], "v1": [turn(ids=VARIED)] * 50}
    for base, went in (([], [1]), (USUAL, [])):
        back = Back()
        await Watch(cast("LearningStore", Log(FIRST, LIVE, served={**turns, "v0": base})), back, LIMITS).look()
        assert [number for _, number, _, _ in back.went] == went


async def test_a_version_that_does_well_stays() -> None:
    log, back = Log(FIRST, LIVE, served={"v2": [LIKED, DISLIKED, UNJUDGED] * 9, "v1": [LIKED, DISLIKED] * 9}), Back()
    await Watch(cast("LearningStore", log), back, LIMITS).look()
    assert back.went == []


async def test_it_looks_when_there_is_something_new_and_outlives_a_store_that_fails() -> None:
    log, back = Log(FIRST, LIVE, served={"v2": [DISLIKED] * 2, "v1": [LIKED] * 20}), Back()
    failures: list[Any] = []
    asked = log.served_turns

    async def failing(*args: Any, **kwargs: Any) -> Sequence[ServedTurn]:
        if not failures:
            failures.append(1)
            raise EngineRefused("once")
        return await asked(*args, **kwargs)

    log.served_turns = failing  # type: ignore[method-assign]
    watching = asyncio.create_task(Watch(cast("LearningStore", log), back, LIMITS).run())
    try:
        await asyncio.sleep(0.01)
        assert (back.went, len(failures)) == ([], 1)
        log.turns["v2"] = [DISLIKED] * 6
        log.served.set()
        await asyncio.wait_for(back.done.wait(), 5.0)
    finally:
        watching.cancel()

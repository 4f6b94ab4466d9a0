"""Groups wait while enough of their line's samples wait, and no longer than a trainer may take."""

from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.envs.pace import Pace


class Backlog:
    """Samples that no step has learned from, by line."""

    def __init__(self, **unlearned: int) -> None:
        self.unlearned = unlearned

    async def of(self, line: str) -> int:
        return self.unlearned[line]


async def test_a_group_begins_when_what_was_learned_answers() -> None:
    backlog = Backlog(ours=8, theirs=7)
    pace = Pace(backlog.of, most=lambda line: 8, look_again_s=60.0)
    await pace.keep("theirs")
    waiting = asyncio.create_task(pace.keep("ours"))
    pace.stepped()
    await asyncio.sleep(0.01)
    assert not waiting.done(), "a step of another line, or one that left as many"
    backlog.unlearned["ours"] = 7
    await asyncio.sleep(0.01)
    assert not waiting.done(), "it looks again when it is told"
    pace.stepped()
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("most", [1, 100])
async def test_a_trainer_that_is_away_stops_no_collection(most: int) -> None:
    pace = Pace(Backlog(ours=100).of, most=lambda line: most, patience_s=0.01)
    await asyncio.wait_for(pace.keep("ours"), 5)


async def test_where_no_step_tells_it_looks_again() -> None:
    backlog = Backlog(ours=1)
    waiting = asyncio.create_task(Pace(backlog.of, most=lambda line: 1, look_again_s=0.01).keep("ours"))
    await asyncio.sleep(0.02)
    backlog.unlearned["ours"] = 0
    await asyncio.wait_for(waiting, 5)

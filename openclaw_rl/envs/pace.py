"""Attempts begin as fast as they are learned from, so that they show what the present version does.

    consumes      how much a line has yet to learn from; the ends of steps
    produces      permission to begin another group
    waits for     a step and the release of what it made, and no longer than `patience_s`: a trainer that is away stops
                  no collection
    woken by      the release, the clock

On a machine that samples and trains on the same cores both are quicker one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from openclaw_rl.protocols import LearningStore

PATIENCE_S = 300.0
LOOK_AGAIN_S = 3.0
"""Of a group that teaches nothing, since its attempts ended alike, no step tells."""


class Pace:
    """`unlearned` counts what a line has yet to learn from; with `most` of that its groups wait."""

    def __init__(
        self,
        unlearned: Callable[[str], Awaitable[int]],
        *,
        most: Callable[[str], int],
        patience_s: float = PATIENCE_S,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self._unlearned = unlearned
        self._most = most
        self._patience_s = patience_s
        self._look_again_s = look_again_s
        self._stepped = asyncio.Event()

    def stepped(self) -> None:
        """What a step made answers, or never will."""
        self._stepped.set()

    async def keep(self, line: str) -> None:
        """Returns when another group of the line may begin."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while await self._unlearned(line) >= self._most(line):
                    self._stepped.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._look_again_s):
                            await self._stepped.wait()


async def count_unlearned(lessons: LearningStore, line: str) -> int:
    """Answers of a line that are to be judged or credited, samples that wait for a step, and those of the step that is
    being taken."""
    begun = await lessons.num_open("judge", line) + await lessons.num_open("credit", line)
    waiting = sum(one.num_samples for one in await lessons.waiting() if one.line == line)
    return begun + waiting + sum(len(one.sample_ids) for one in await lessons.planned_steps() if one.line == line)

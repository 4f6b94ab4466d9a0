"""The background asks a few at a time beside people, and more where nobody asks; nobody is forgotten."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from openclaw_rl.engine.foreign.places import Places


class Crowd:
    """Background requests of which each stays until it is told to go."""

    def __init__(self, places: Places, num: int) -> None:
        self._places = places
        self.inside: list[int] = []
        self.go = [asyncio.Event() for _ in range(num)]
        self.tasks = [asyncio.create_task(self._ask(number)) for number in range(num)]

    async def _ask(self, number: int) -> None:
        async with self._places.of_background():
            self.inside.append(number)
            await self.go[number].wait()
            self.inside.remove(number)

    async def settle(self) -> list[int]:
        for _ in range(10):
            await asyncio.sleep(0)
        return sorted(self.inside)


async def test_a_quarter_beside_people_and_a_half_where_nobody_asks() -> None:
    places = Places(8)
    crowd = Crowd(places, 7)
    assert await crowd.settle() == [0, 1, 2, 3]
    with ExitStack() as people:
        people.enter_context(places.of_person())
        for number in (0, 1):
            crowd.go[number].set()
        assert await crowd.settle() == [2, 3], "who has a place keeps it, and no other comes"
        crowd.go[2].set()
        assert await crowd.settle() == [3, 4]
        people.enter_context(places.of_person())
    assert await crowd.settle() == [3, 4, 5, 6]
    for event in crowd.go:
        event.set()
    await asyncio.gather(*crowd.tasks)


@pytest.mark.parametrize("max_active", [1, 2, 3])
async def test_there_is_always_a_place(max_active: int) -> None:
    places = Places(max_active)
    with places.of_person():
        crowd = Crowd(places, 2)
        assert await crowd.settle() == [0]
        for event in crowd.go:
            event.set()
        await asyncio.gather(*crowd.tasks)


async def test_who_is_cancelled_leaves_the_place_to_the_next() -> None:
    places = Places(4)
    crowd = Crowd(places, 5)
    assert await crowd.settle() == [0, 1]
    for number in (0, 2):  # one inside, one in line
        crowd.tasks[number].cancel()
    assert await crowd.settle() == [0, 1, 3], "the first never says that it left"
    for event in crowd.go:
        event.set()
    done = await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, False, True, False, False]


async def test_who_is_cancelled_as_his_turn_comes_gives_it_on() -> None:
    places = Places(2)
    crowd = Crowd(places, 3)
    assert await crowd.settle() == [0]
    crowd.go[0].set()
    await asyncio.sleep(0)  # the first leaves, and the turn is the second's before it runs again
    crowd.tasks[1].cancel()
    assert await crowd.settle() == [2]
    crowd.go[2].set()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)

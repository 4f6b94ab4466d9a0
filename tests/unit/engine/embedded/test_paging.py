"""Which versions' weights are in memory: never more than there is room for, nobody refused, nobody passed for ever."""

from __future__ import annotations

import asyncio
import random

import pytest

from openclaw_rl.engine.embedded.paging import OVERTAKE, Pages
from openclaw_rl.types import Publication
from tests.factories.weights import folder_ref


def published(number: int) -> Publication:
    return Publication(version=f"v{number}", weights=folder_ref("/adapters", f"sum of {number}"), live=False)


class Disk:
    """Loads a version's label, and remembers what is in memory; `broken` ones cannot be read."""

    def __init__(self, most: int) -> None:
        self.pages: Pages[str] = Pages(most, self.load, self.free)
        self.memory: set[str] = set()
        self.read: list[str] = []
        self.broken: set[str] = set()
        self.most_at_once = 0

    async def load(self, publication: Publication) -> str:
        await asyncio.sleep(0)
        if publication.version in self.broken:
            raise OSError(f"{publication.version} cannot be read")
        self.read.append(publication.version)
        self.memory.add(publication.version)
        self.most_at_once = max(self.most_at_once, len(self.memory))
        return publication.version

    def free(self, label: str) -> None:
        self.memory.remove(label)

    async def use(self, number: int, steps: int = 1) -> None:
        weights = await self.pages.take(published(number))
        assert weights == f"v{number}" in self.memory
        for _ in range(steps):
            await asyncio.sleep(0)
            assert f"v{number}" in self.memory, "what is used stays"
        self.pages.give_back(f"v{number}")


async def test_the_version_used_longest_ago_makes_room() -> None:
    disk = Disk(2)
    for number in (1, 2, 1, 3):
        await disk.use(number)
    assert disk.pages.labels == ("v1", "v3")
    await disk.use(1)
    assert disk.read == ["v1", "v2", "v3"], "what is in memory is not read again"
    await disk.use(2)
    assert disk.pages.labels == ("v1", "v2")


async def test_a_thousand_versions_share_the_room_of_eight_and_everybody_is_served() -> None:
    disk, drawn = Disk(8), random.Random(7)
    await asyncio.gather(*(disk.use(drawn.randrange(1000), drawn.randrange(1, 6)) for _ in range(3000)))
    assert disk.most_at_once == 8
    assert len(disk.memory) == 8


async def test_requests_that_wait_for_one_version_share_its_reading() -> None:
    disk = Disk(1)
    await asyncio.gather(*(disk.use(5) for _ in range(20)))
    assert disk.read == ["v5"]


async def test_who_waits_for_room_is_passed_a_bounded_number_of_times() -> None:
    """Answers by one version overlap without end; a request for another one gets its turn all the same."""
    disk = Disk(1)
    await disk.pages.take(published(1))
    waits = asyncio.create_task(disk.use(2))
    await asyncio.sleep(0)
    num_passed = 0
    overlapping = [asyncio.create_task(disk.pages.take(published(1))) for _ in range(50)]
    for _ in range(50):
        await asyncio.sleep(0)
    num_passed = sum(task.done() for task in overlapping)
    assert num_passed == OVERTAKE
    for _ in range(1 + num_passed):
        disk.pages.give_back("v1")
    await waits
    await asyncio.gather(*overlapping)
    assert disk.read == ["v1", "v2", "v1"]


async def test_each_that_waits_is_passed_so_often_and_no_more() -> None:
    """Whoever's version came into memory asks again at once; the last of those who wait has been passed enough."""
    disk = Disk(1)
    await disk.pages.take(published(0))
    ended: list[int] = []

    async def talks(number: int) -> None:
        for _ in range(20):
            await disk.use(number)
            ended.append(number)

    people = [asyncio.create_task(talks(number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    disk.pages.give_back("v0")
    await asyncio.gather(*people)
    for number in range(1, 6):
        assert ended.index(number) <= 4 * (1 + OVERTAKE), "the others before it, each with those that it let pass"
    assert {ended[-n] for n in range(1, 6)} == set(range(1, 6)), "they end together"


async def test_versions_are_brought_back_in_the_order_in_which_they_were_asked_for() -> None:
    disk = Disk(1)
    await disk.pages.take(published(0))
    waiting = [asyncio.create_task(disk.use(number)) for number in (3, 1, 2)]
    await asyncio.sleep(0)
    disk.pages.give_back("v0")
    await asyncio.gather(*waiting)
    assert disk.read == ["v0", "v3", "v1", "v2"]


async def test_what_cannot_be_read_fails_those_who_wait_for_it_and_nobody_else() -> None:
    disk = Disk(1)
    disk.broken.add("v2")
    results = await asyncio.gather(*(disk.use(number) for number in (1, 2, 2, 3)), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), OSError, OSError, type(None)]
    disk.broken.clear()
    await disk.use(2)  # it is tried again for the next one


@pytest.mark.parametrize("granted", [False, True])
async def test_who_leaves_while_waiting_leaves_nothing_held(granted: bool) -> None:
    disk = Disk(1)
    await disk.pages.take(published(1))
    leaves = asyncio.create_task(disk.pages.take(published(2)))
    await asyncio.sleep(0)
    if granted:
        disk.pages.give_back("v1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert disk.memory == {"v2"}, "granted, and not yet awake"
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    if not granted:
        disk.pages.give_back("v1")
    await disk.use(3)
    await disk.use(2)
    await disk.pages.close()


async def test_a_version_that_is_gone_frees_its_place() -> None:
    disk = Disk(1)
    await disk.use(1)
    disk.pages.drop("v1")
    disk.pages.drop("v7")  # never in memory
    assert (disk.memory, disk.pages.labels) == (set(), ())

"""Published versions -> the weights of those that somebody needs now, and of no more than fit into memory.

A version that nobody uses may leave memory, the one used longest ago first. Whoever asks for it later waits until its
checkpoint is read again and hashes to what was published; nobody is refused for want of room. What it left in the cache
stays valid: a label names the same bytes for ever.

Nobody waits without bound for room that others keep busy. Versions are brought back one at a time, in the order in
which they were first asked for. Requests for versions in memory may pass each of those that wait, but only `OVERTAKE`
times as often as there is room for versions; then they stand in line too, and room is made as soon as the answers that
run have ended. So one that waits has waited for the versions asked for before it, each brought once, and for so many
requests.

Knows no scheduler and no files: it is told how to load and how to free. Lives on one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from openclaw_rl.types import Publication

W = TypeVar("W")

OVERTAKE = 2


@dataclass(slots=True, eq=False)
class _Page(Generic[W]):
    """The weights of a version in memory, and how many requests hold them."""

    weights: W
    num_holders: int = 0


@dataclass(slots=True, eq=False)
class _Wish:
    """A version that is asked for and has to wait its turn."""

    publication: Publication
    num_passed_before: int
    """As the count stood when it came."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


class Pages(Generic[W]):
    """At most `most` versions in memory at once. What `load` raises, everybody who waits for that version gets."""

    def __init__(self, most: int, load: Callable[[Publication], Awaitable[W]], free: Callable[[W], object]) -> None:
        self._most = most
        self._load = load
        self._free = free
        self._pages: OrderedDict[str, _Page[W]] = OrderedDict()
        """The one used longest ago first."""
        self._wishes: OrderedDict[str, _Wish] = OrderedDict()
        self._num_passed = 0
        """Requests so far that went before one that waited."""
        self._bringing: asyncio.Task[None] | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """What is in memory, the one used longest ago first."""
        return tuple(self._pages)

    @property
    def is_full(self) -> bool:
        return len(self._pages) >= self._most

    async def take(self, publication: Publication) -> W:
        """The weights of a version, which stay in memory until `give_back`."""
        return (await self._taken(publication)).weights

    def give_back(self, label: str) -> None:
        """Ends one `take`."""
        self._pages[label].num_holders -= 1
        self._go_on()

    async def close(self) -> None:
        """Returns when nothing is read any more."""
        while self._bringing is not None:
            await asyncio.wait((self._bringing,))

    def drop(self, label: str) -> bool:
        """A version is gone for good, and nobody holds it any more; whether it was in memory."""
        page = self._pages.pop(label, None)
        if page is not None:
            assert not page.num_holders, "who retires a version waits for those who use it"
            self._free(page.weights)
            self._go_on()
        return page is not None

    async def _taken(self, publication: Publication) -> _Page[W]:
        label = publication.version
        if label in self._pages and self._may_pass():
            self._num_passed += bool(self._wishes)
            return self._used(label)
        wish = self._wishes.setdefault(label, _Wish(publication, self._num_passed))
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wish.waiters.append(granted)
        self._go_on()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._pages[label].num_holders -= 1  # it was granted in the same moment
            else:
                wish.waiters.remove(granted)
                if not wish.waiters and self._wishes.get(label) is wish and self._bringing is None:
                    del self._wishes[label]
            self._go_on()
            raise
        return self._pages[label]

    def _may_pass(self) -> bool:
        first = next(iter(self._wishes.values()), None)
        return first is None or self._num_passed - first.num_passed_before < OVERTAKE * self._most

    def _used(self, label: str) -> _Page[W]:
        self._pages.move_to_end(label)
        page = self._pages[label]
        page.num_holders += 1
        return page

    def _go_on(self) -> None:
        """Grants what the first wishes ask for, as far as there is room."""
        while self._wishes and self._bringing is None:
            label, wish = next(iter(self._wishes.items()))
            if label in self._pages:
                self._grant(label, wish)
            elif self._make_room():
                self._bringing = asyncio.create_task(self._bring(label, wish))
            else:
                return

    def _grant(self, label: str, wish: _Wish) -> None:
        del self._wishes[label]
        for waiter in wish.waiters:
            if not waiter.done():
                self._used(label)
                waiter.set_result(None)

    def _make_room(self) -> bool:
        if len(self._pages) < self._most:
            return True
        idle = next((label for label, page in self._pages.items() if not page.num_holders), None)
        if idle is not None:
            self._free(self._pages.pop(idle).weights)
        return idle is not None

    async def _bring(self, label: str, wish: _Wish) -> None:
        try:
            self._pages[label] = _Page(await self._load(wish.publication))
        except BaseException as error:
            del self._wishes[label]
            for waiter in wish.waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._bringing = None
            self._go_on()

"""Changes of the store -> events for the pages that are open.

    consumes      the store's rows, as they were at the last look
    produces      events, at most `MAX_WAITING` of them for each page that does not read
    waits for     a page that is open; a pause between two looks
    woken by      the store

One look serves all pages, whatever their number, in a thread of its own; where no page is open nobody looks. A page
that is too slow for its events is told that what it shows is old, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from openclaw_rl.dashboard.server.visiting import Visitor
from openclaw_rl.errors import RequestError, StoreError
from openclaw_rl.protocols import LearningStore, ReadStore
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.types import BASE_VERSION, line_of, turn_id, version_label
from openclaw_rl.views.page.live import LiveCorrection, LiveHello, LiveMachine, LiveTurn, LiveVersion
from openclaw_rl.views.page.tracing import read_corrections

log = logging.getLogger("openclaw_rl.dashboard")

Told = LiveHello | LiveTurn | LiveCorrection | LiveVersion | LiveMachine

MAX_PAGES, MAX_WAITING = 200, 256
_PAUSE_S = 0.3
"""Between two looks: what changes within it is told together."""
_OVERLAP_S = 1.0
"""Rows are written a little later than the time that they name."""
_MOST = 200
"""Turns that one look tells of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """An event and whose line it is about; `user` None is for the owner alone."""

    user: str | None
    told: Told


@dataclass(slots=True, kw_only=True, eq=False)
class OpenPage:
    """One page that listens."""

    visitor: Visitor
    waiting: deque[Told] = field(default_factory=deque)
    has_more: asyncio.Event = field(default_factory=asyncio.Event)
    is_behind: bool = False

    def tell(self, happened: Happened) -> None:
        if not (self.visitor.is_owner or happened.user == self.visitor.user):
            return
        if len(self.waiting) >= MAX_WAITING:
            self.waiting.clear()
            self.is_behind = True
        if not self.is_behind:
            self.waiting.append(happened.told)
        self.has_more.set()


class Feed:
    """`run` is the loop; `open` is one page."""

    def __init__(
        self, rows: ReadStore, lessons: LearningStore, live: LiveVersions, *, warm: Callable[[], object]
    ) -> None:
        """`warm` makes ready, with the first page, what pages would wait for. Blocking."""
        self._rows = rows
        self._wakeup = lessons.woken("page")
        self._live = live
        self._warm = warm
        self._pages: set[OpenPage] = set()
        self._opened = asyncio.Event()
        self._looked = asyncio.Event()
        self._seen = _Seen()

    def __len__(self) -> int:
        return len(self._pages)

    async def run(self) -> None:
        while True:
            if not self._pages:
                self._opened.clear()
                self._looked.clear()
                await self._opened.wait()
                await asyncio.to_thread(self._warm)
                self._seen = _Seen()  # what the first look finds is no news
            self._wakeup.clear()
            try:
                news = await asyncio.to_thread(self._look)
            except StoreError as error:  # pages are no reason to end a server that still answers
                log.warning("open pages hear nothing for now: %s", error)
                news = []
            self._looked.set()
            for happened in news:
                for page in self._pages:
                    page.tell(happened)
            await asyncio.sleep(_PAUSE_S)
            await self._wakeup.wait()

    async def events(self, page: OpenPage) -> AsyncGenerator[Told, None]:
        """What a page is told, as it comes; from the hello on nothing is missed."""
        await self._looked.wait()
        yield self._hello(page.visitor)
        while True:
            await page.has_more.wait()
            page.has_more.clear()
            if page.is_behind:
                page.is_behind = False
                yield self._hello(page.visitor)
            while page.waiting:
                yield page.waiting.popleft()

    @contextmanager
    def open(self, visitor: Visitor) -> Iterator[OpenPage]:
        """A page, until the end of the block."""
        if len(self._pages) >= MAX_PAGES:
            raise RequestError("too many pages are open; close some", status=503, code="too_many", retry_after_s=10)
        page = OpenPage(visitor=visitor)
        self._pages.add(page)
        self._opened.set()
        try:
            yield page
        finally:
            self._pages.discard(page)

    def _hello(self, visitor: Visitor) -> LiveHello:
        return LiveHello(version=self._live.present(visitor.user) or BASE_VERSION, at=time.time())

    def _look(self) -> list[Happened]:
        """What is new since the last look. Blocking."""
        rows, seen, now = self._rows, self._seen, time.time()
        is_news = seen.at > 0
        happened: list[Happened] = []
        for session, index in reversed(rows.seen_sessions(seen.at - _OVERLAP_S, limit=_MOST)):
            user = session.user if session.episode is None else None
            if seen.turns.get(session.id) != index:
                seen.turns[session.id] = index
                told = LiveTurn(user=session.user, session=session.id, turn=turn_id(session.id, index))
                happened.append(Happened(user=user, told=told))
        states = rows.states()
        moved = [name for name, state in states.items() if seen.states.get(name) != state]
        turns = rows.changed_turns((seen.at or now) - _OVERLAP_S, limit=_MOST)
        if is_news:
            happened += self._versions(moved, states)
            turns += [turn for line, number in moved for turn in rows.step_samples(line, number)]
        happened += self._corrections(list(dict.fromkeys(turns))[:_MOST])
        seen.at, seen.states = now, states
        if len(seen.turns) > 10 * _MOST:
            seen.turns = dict(list(seen.turns.items())[-_MOST:])
        if happened:
            happened.append(Happened(user=None, told=LiveMachine()))
        return happened if is_news else []

    def _versions(self, moved: list[tuple[str, int]], states: Mapping[tuple[str, int], str]) -> list[Happened]:
        told = []
        for line, number in moved:
            answers = next((n for (of, n), state in states.items() if of == line and state.split()[0] == "live"), 0)
            told.append(
                Happened(
                    user=line,
                    told=LiveVersion(
                        user=line,
                        version=version_label(line, number),
                        state=states[line, number].split()[0],
                        answers=version_label(line, answers),
                    ),
                )
            )
        return told

    def _corrections(self, turns: list[tuple[str, int]]) -> list[Happened]:
        """Of those turns whose correction is another one than before."""
        told = []
        for (session, index), correction in read_corrections(self._rows, turns).items():
            if self._seen.corrections.get((session, index)) == hash(correction):
                continue
            self._seen.corrections[session, index] = hash(correction)
            found = self._rows.session(session)
            if found is None:
                continue
            user = found.user if found.episode is None else None
            event = LiveCorrection(session=session, user=line_of(found), correction=correction)
            told.append(Happened(user=user, told=event))
        if len(self._seen.corrections) > 10 * _MOST:
            self._seen.corrections = dict(list(self._seen.corrections.items())[-_MOST:])
        return told


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The rows at the last look; `at` 0: there was none."""

    at: float = 0.0
    turns: dict[str, int] = field(default_factory=dict)
    states: Mapping[tuple[str, int], str] = field(default_factory=dict)
    corrections: dict[tuple[str, int], int] = field(default_factory=dict)

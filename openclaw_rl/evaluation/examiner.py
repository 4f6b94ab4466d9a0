"""Versions -> examinations, one at a time, while everything else goes on.

    consumes      versions that went live: of a line the first one of every n steps
    produces      the measures of a small exam, for the row of the step that made the version
    waits for     the engine, behind everybody else
    woken by      the release

Looks on: nothing waits for an examination, and one that fails is a line in the log. If versions come faster than they
can be examined, only the newest of each line is. `examine` is the same at once, for a command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from openclaw_rl.errors import OpenClawError
from openclaw_rl.evaluation.exam import SMALL_NUM_ITEMS, Exam, Examination, Progress, examine, summary
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.types import Version

_log = logging.getLogger(__name__)

SMALL = Exam(num_items=SMALL_NUM_ITEMS)


class Examiner:
    """`loaded` keeps a version on the engine while it is examined; `every` None looks at none by itself."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        loaded: Callable[[str, int], AbstractAsyncContextManager[str]],
        *,
        every: int | None = None,
        on_measured: Callable[[str, int, Mapping[str, float]], Awaitable[None]] | None = None,
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._loaded = loaded
        self._every = every
        self._on_measured = on_measured
        self._wanted: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        """By line: the newest version that went live."""
        self._woken = asyncio.Event()

    def changed(self, version: Version) -> None:
        """A version has another state. One that somebody went back to is not examined again."""
        if self._every is None or version.state != "live":
            return
        before = self._newest.get(version.line, version.parent)
        self._newest[version.line] = max(before, version.number)
        if version.number // self._every > before // self._every:
            self._wanted[version.line] = version.number
            self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._wanted:
                await self._look_at(*self._wanted.popitem())
            self._woken.clear()
            await self._woken.wait()

    async def examine(
        self, line: str, number: int, exam: Exam, *, on_progress: Progress = lambda *_: None
    ) -> Examination:
        """One version, now."""
        async with self._loaded(line, number) as label:
            return await examine(self._engine, self._renderer, label, exam, on_progress=on_progress)

    async def _look_at(self, line: str, number: int) -> None:
        try:
            found = await self.examine(line, number, SMALL)
            if self._on_measured is not None:
                await self._on_measured(line, number, summary(found))
        except OpenClawError as error:
            _log.warning("version %d of %s was not examined: %s", number, line, error)

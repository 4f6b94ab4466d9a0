"""A conversation, or all of a user's, leaves: what was learned from it, its rows, its traces.

    take back   the last version before its first lesson answers; all other samples are learned from again
    files       every version that learned from it: weights, optimiser, average, critic
    records     the lines about its turns
    rows        in one transaction, overwritten; then their copies in unused parts of pages, and the log

Rows go last: killed before that, the same command finds the conversation and does the rest; killed after it, the next
start erases what is left (`resume`), and a server does so as soon as nobody holds an old snapshot. Version rows stay,
without a word about what they learned from, because their numbers are never given twice. The line's running mean of
rewards starts anew. The engine's cache forgets the conversation with all others of its user on that line, for they
share beginnings; what else a process holds in memory leaves with its version, or when it is needed elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from openclaw_rl.errors import OpenClawError, StoreError, TrainError
from openclaw_rl.protocols import LearningStore, WeightsKeeper
from openclaw_rl.types import TRACES_LEFT, Lesson, Session, Undone

log = logging.getLogger("openclaw_rl.release")

MAX_ROUNDS = 5
AGAIN_S = 10.0
"""When a server looks again whether traces are left, of what was deleted while somebody read."""


class NotForgotten(OpenClawError):
    """New steps kept learning from the conversation while it was forgotten, or files could not be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """`is_erased` False: somebody reads the store, so that traces stay in it until a server finds that nobody does."""

    undone: Undone
    num_sessions: int
    removed: tuple[int, ...]
    """Versions whose files are gone."""
    is_erased: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """Forgets, for a server or without one.

    `take_back` undoes a lesson. Inside `let_go` nobody adds to its sessions. `forget_cache`: nothing that the engine
    computed of sessions is found any more, also where no engine runs. `erase` leaves no trace of what was
    deleted; False if it cannot yet.
    """

    log: LearningStore
    keeper: WeightsKeeper
    take_back: Callable[[Lesson], Awaitable[Undone]]
    let_go: Callable[[Sequence[str]], AbstractContextManager[None]]
    forget_cache: Callable[[Collection[Session]], Awaitable[None]]
    forget_records: Callable[[Lesson], None]
    erase: Callable[[], Awaitable[bool]]

    async def forget(self, lesson: Lesson) -> Forgotten:
        """`NotForgotten` if steps learn from it faster than it can be taken back, or files of a version stay.

        Then its rows are still there, so that the same command does the rest; what was removed stays removed.
        """
        with self.let_go(lesson.sessions):
            pass  # before anything is changed: a session that is being answered cannot go
        sessions = [found for name in lesson.sessions if (found := await self.log.get_session(name)) is not None]
        for _ in range(MAX_ROUNDS):
            undone = await self.take_back(lesson)
            await self._remove_files(lesson.line, undone.plan.holding)
            await asyncio.to_thread(self.forget_records, lesson)
            with self.let_go(lesson.sessions):
                await self.forget_cache(sessions)
                if await self.log.forget(lesson, undone.plan):
                    break
        else:
            raise NotForgotten("new steps learned from it meanwhile; stop the server, then forget it again")
        await asyncio.to_thread(self.forget_records, lesson)  # what was credited meanwhile
        return Forgotten(
            undone=undone,
            num_sessions=len(lesson.sessions),
            removed=undone.plan.holding,
            is_erased=await self.erase(),
        )

    async def _remove_files(self, line: str, numbers: Sequence[int]) -> None:
        """Removes all files that it can, and only then complains about the rest."""
        left: list[str] = []
        for version in await self.log.versions(line, every_model=True):
            if version.number in numbers and version.weights is not None:
                try:
                    await self.keeper.discard(version.weights)
                except TrainError as error:
                    left.append(str(error))
        if left:
            raise NotForgotten(f"versions that learned from it stay: {'. '.join(left)}; then forget it again")

    async def resume(self) -> None:
        """Erases the traces that an interrupted `forget` left."""
        if await self.log.flag(TRACES_LEFT) is not None:
            await self.erase()

    async def run(self) -> None:
        """Erases what could not be erased at once. A disk that fails only delays it.

        consumes      the flag that traces are left
        produces      pages and a log without them
        woken by      the start, and the clock
        """
        while True:
            try:
                await self.resume()
            except StoreError as error:
                log.warning("what was deleted could not be erased", extra={"reason": str(error)})
            await asyncio.sleep(AGAIN_S)

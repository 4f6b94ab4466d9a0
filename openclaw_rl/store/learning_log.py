"""The durable log of what is learned, for the loops of the one process that writes it.

Every method is one transaction in the store's thread, on disk when it returns. `woken(stage)` is set when there is new
work for a stage; who waits for it clears it first and looks afterwards, so that no work is overlooked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from openclaw_rl.store import lessons, queries, tasks
from openclaw_rl.types import Baseline, Credit, Feedback, Judgement, Lease, NextState, Sample, Session, Stage, Turn

T = TypeVar("T")


class Transact(Protocol):
    """Runs a function on the writing connection, inside one transaction."""

    def __call__(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...


class LearningLog:
    """`protocols.Lessons` on SQLite."""

    def __init__(self, transact: Transact) -> None:
        self._transact = transact
        self._woken: dict[Stage, asyncio.Event] = {"judge": asyncio.Event(), "credit": asyncio.Event()}

    def woken(self, stage: Stage) -> asyncio.Event:
        """Set when a task of this stage may have come up."""
        return self._woken[stage]

    async def lease(self, stage: Stage, *, limit: int, ttl_s: float, only_closed_sessions: bool = False) -> list[Lease]:
        """Tasks that are due, the oldest first, for this caller alone until the leases end."""
        now = time.time()
        return await self._transact(
            lambda connection: tasks.lease(
                connection, stage, limit=limit, now=now, ttl_s=ttl_s, only_closed_sessions=only_closed_sessions
            )
        )

    async def renew(self, leases: Sequence[Lease], *, ttl_s: float) -> list[Lease]:
        """Those that are still held, with their new end."""
        until = time.time() + ttl_s
        return await self._transact(lambda connection: tasks.renew(connection, leases, until=until))

    async def give_back(self, held: Lease, *, due_at: float) -> bool:
        """Try this task again at `due_at`; counts as an attempt. False if the lease was lost."""
        return await self._transact(lambda connection: tasks.give_back(connection, held, due_at=due_at))

    async def close_task(self, held: Lease) -> bool:
        """Nothing is to be done about this task. False if the lease was lost."""
        return await self._transact(lambda connection: tasks.finish(connection, held, now=time.time()))

    async def release_all(self) -> int:
        """Take up what a process that is gone had leased."""
        return await self._transact(lambda connection: tasks.release_all(connection, now=time.time()))

    async def next_due(self, stage: Stage) -> float | None:
        """When the next open task is due, in seconds since the epoch; None if there is none."""
        return await self._transact(lambda connection: tasks.next_due(connection, stage))

    async def num_open(self, stage: Stage) -> int:
        """How much work waits."""
        return await self._transact(lambda connection: tasks.num_open(connection, stage))

    async def put_judgement(self, held: Lease, judgement: Judgement) -> bool:
        """Store a judgement and end the lease, both or neither. False if the lease was lost: nothing is stored."""

        def work(connection: Connection) -> bool:
            if not tasks.finish(connection, held, now=judgement.judged_at):
                return False
            lessons.put_judgement(connection, judgement)
            return True

        stored = await self._transact(work)
        self._woken["credit"].set()
        return stored

    async def put_credit(self, held: Lease, credit: Credit) -> bool:
        """Store what a judgement came to and end the lease, both or neither. False if the lease was lost."""

        def work(connection: Connection) -> bool:
            if not tasks.finish(connection, held, now=credit.credited_at):
                return False
            lessons.put_credit(connection, credit)
            return True

        return await self._transact(work)

    async def get_session(self, session: str) -> Session | None:
        return await self._transact(lambda connection: queries.session(connection, session))

    async def get_turn(self, session: str, index: int) -> Turn | None:
        return await self._transact(lambda connection: queries.turn(connection, session, index))

    async def turns(self, session: str) -> list[Turn]:
        return await self._transact(lambda connection: queries.turns(connection, session))

    async def next_state(self, session: str, index: int) -> NextState | None:
        return await self._transact(lambda connection: queries.next_state(connection, session, index))

    async def feedback(self, session: str) -> list[Feedback]:
        return await self._transact(lambda connection: queries.feedback(connection, session))

    async def judgements(self, session: str) -> list[Judgement]:
        """The newest judgement of every turn of a session."""
        return await self._transact(lambda connection: lessons.judgements(connection, session))

    async def credits(self, session: str) -> list[Credit]:
        """What became of every judged turn of a session."""
        return await self._transact(lambda connection: lessons.session_credits(connection, session))

    async def waiting_samples(self, line: str | None, limit: int) -> list[Sample]:
        """What no step has learned from yet."""
        return await self._transact(lambda connection: lessons.waiting_samples(connection, line, limit))

    async def mark_trained(self, sample_ids: Sequence[str], *, step: int) -> None:
        """This step learned from these samples; no other one will."""
        await self._transact(lambda connection: lessons.mark_trained(connection, sample_ids, step))

    async def baseline(self, line: str, turn_kind: str) -> Baseline:
        return await self._transact(lambda connection: lessons.baseline(connection, line, turn_kind))

    async def flag(self, name: str) -> str | None:
        return await self._transact(lambda connection: lessons.flag(connection, name))

    async def set_flag(self, name: str, value: str | None) -> None:
        await self._transact(lambda connection: lessons.set_flag(connection, name, value))

    async def delete_session(self, session: str) -> None:
        """Every row of it; its pages are overwritten."""
        await self._transact(lambda connection: lessons.delete_session(connection, session))

    async def sessions_older_than(self, last_seen_at: float, *, limit: int = 100) -> list[str]:
        """Closed sessions that nobody has come back to since."""
        return await self._transact(lambda connection: lessons.sessions_older_than(connection, last_seen_at, limit))

"""The durable log of what is learned, for the loops of a process that writes it: `protocols.LearningStore`.

Every method is one transaction in the store's thread, on disk when it returns. Most are a query of `sql/` as it is.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import Wakeup, Wakeups
from openclaw_rl.store.sql import episodes, lessons, queries, served, steps, tasks, undoing
from openclaw_rl.types import (
    PRESENT_MODEL,
    Credit,
    Judgement,
    Lease,
    Lesson,
    Stage,
    Topic,
    Undoing,
    Undone,
    Version,
    WeightsRef,
)

T = TypeVar("T")
P = ParamSpec("P")


class Transact(Protocol):
    """Runs a function on a connection, inside one transaction."""

    def __call__(self, work: Callable[[Connection], T], /) -> Awaitable[T]: ...


class LocalWakeups:
    """Wake-ups within one process. Whatever wakes a loop wakes the page too."""

    def __init__(self) -> None:
        self._page = asyncio.Event()
        self._events: dict[Topic, asyncio.Event] = {"page": self._page}

    def woken(self, topic: Topic) -> Wakeup:
        """The event of a topic."""
        if topic not in self._events:
            self._events[topic] = _PageToo(self._page)
        return self._events[topic]


class _PageToo(asyncio.Event):
    """An event that sets the page's with it."""

    def __init__(self, page: asyncio.Event) -> None:
        super().__init__()
        self._page = page

    def set(self) -> None:
        super().set()
        self._page.set()


def read(
    query: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[LearningLog, P], Coroutine[Any, Any, T]]:
    """A method that runs a query of `sql/` that changes nothing."""

    async def method(self: LearningLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda connection: query(connection, *args, **kwargs))

    return method


def asked(
    query: Callable[Concatenate[Connection, P], T], *, wakes: Sequence[Topic] = ()
) -> Callable[Concatenate[LearningLog, P], Coroutine[Any, Any, T]]:
    """A method that runs a query of `sql/` in one transaction, and then wakes the loops that it may have work for."""

    async def method(self: LearningLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer = await self._transact(lambda connection: query(connection, *args, **kwargs))
        for topic in wakes:
            self.woken(topic).set()
        return answer

    return method


class LearningLog:
    """`protocols.LearningStore` on the queries of `sql/`."""

    def __init__(
        self,
        transact: Transact,
        *,
        read: Transact | None = None,
        at_once: Transact | None = None,
        on_delete: Callable[[str], None] = lambda _: None,
        wakeups: Wakeups | None = None,
        owner: str = "",
    ) -> None:
        """`read` is for what changes nothing. `at_once` is for deletions, and is done before all that is put later;
        `on_delete` is told of a session that goes."""
        self._transact = transact
        self._read = read or transact
        self._at_once = at_once or transact
        self._on_delete = on_delete
        self._owner = owner or f"{tasks.LOCAL_OWNER}{os.getpid()}:{secrets.token_hex(4)}"
        self._wakeups = wakeups or LocalWakeups()

    def woken(self, topic: Topic) -> Wakeup:
        """Set when there may be new work. Whoever waits for it clears it first and looks afterwards."""
        return self._wakeups.woken(topic)

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write too."""
        return False

    @asynccontextmanager
    async def claimed(self, name: str) -> AsyncIterator[bool]:
        """Whether what has this name is this process's alone until the end. Of one process it always is."""
        yield True

    async def lease(
        self,
        stage: Stage,
        *,
        limit: int,
        ttl_s: float,
        only_closed_sessions: bool = False,
        min_turns: int = 1,
        owner: str = "",
    ) -> list[Lease]:
        """Tasks that are due, for `owner` alone until the leases end; by default for this process."""
        return await self._transact(
            lambda connection: tasks.lease(
                connection,
                stage,
                owner=owner or self._owner,
                limit=limit,
                now=time.time(),
                ttl_s=ttl_s,
                only_closed_sessions=only_closed_sessions,
                min_turns=min_turns,
            )
        )

    async def renew(self, leases: Sequence[Lease], *, ttl_s: float) -> list[Lease]:
        """Those that are still held, with their new end."""
        return await self._transact(lambda connection: tasks.renew(connection, leases, until=time.time() + ttl_s))

    async def close_task(self, held: Lease) -> bool:
        """Nothing is to be done about this task. False if the lease was lost."""
        closed = await self._transact(lambda connection: tasks.finish(connection, held, now=time.time()))
        if held.stage == "judge":
            self.woken("credit").set()  # later turns of the session may have waited for this one
        self.woken("train").set()  # a step may have waited for what comes of this one
        return closed

    async def release_earlier(self) -> int:
        """Take up what earlier runs of this process had leased; leases of workers elsewhere stay."""
        return await self._transact(
            lambda connection: tasks.release_earlier(connection, owner=self._owner, now=time.time())
        )

    give_back = asked(tasks.give_back)
    next_due = read(tasks.next_due)
    num_open = read(tasks.num_open)

    async def put_judgements(self, judged: Sequence[tuple[Lease, Judgement]]) -> list[bool]:
        """Store judgements and end their leases; False for a lease that was lost: nothing of it is stored."""

        def put(connection: Connection, held: Lease, judgement: Judgement) -> bool:
            if not tasks.finish(connection, held, now=judgement.judged_at):
                return False
            lessons.put_judgement(connection, judgement)
            crash_point("store.in_judgement")
            return True

        stored = await self._transact(lambda connection: [put(connection, *one) for one in judged])
        self.woken("credit").set()
        self.woken("watch").set()
        return stored

    async def put_judgement(self, held: Lease, judgement: Judgement) -> bool:
        """The same for one."""
        (stored,) = await self.put_judgements([(held, judgement)])
        return stored

    async def put_credit(self, held: Lease, credit: Credit) -> bool:
        """Store what a judgement came to and end the lease, both or neither. False if the lease was lost."""

        def work(connection: Connection) -> bool:
            if not tasks.finish(connection, held, now=credit.credited_at):
                return False
            lessons.put_credit(connection, credit)
            crash_point("store.in_credit")
            return True

        stored = await self._transact(work)
        self.woken("train").set()
        return stored

    put_episode = asked(episodes.put_episode)
    put_outcome = asked(episodes.put_outcome, wakes=("credit",))  # its group may be complete now
    episode = read(episodes.episode)
    group = read(episodes.group)
    unfinished_episodes = read(episodes.unfinished)

    get_session = read(queries.session)
    sessions_of = read(episodes.sessions_of)
    sessions_older_than = read(lessons.sessions_older_than)
    outline = read(queries.outline)
    get_turn = read(queries.turn)
    turns = read(queries.turns)
    next_state = read(queries.next_state)
    feedback = read(queries.feedback)
    followed_turn = read(queries.followed_turn)

    judged_turn = read(lessons.judged_turn)
    judgements = read(lessons.judgements)
    credits = read(lessons.session_credits)
    baseline = read(lessons.baseline)
    flag = read(lessons.flag)
    set_flag = asked(lessons.set_flag)

    async def run_with(self, model: str) -> None:
        """From now on this is the present model: versions and samples of others rest until they come back."""
        await self.set_flag(PRESENT_MODEL, model)

    waiting = read(steps.waiting)
    waiting_samples = read(lessons.waiting_samples)
    samples_named = read(lessons.samples_named)
    doubted_samples = read(steps.doubted)
    replayable_samples = read(steps.replayable)
    skip_samples = asked(lessons.skip_samples)

    planned_steps = read(steps.planned)
    next_step_number = read(steps.next_number)
    plan_step = asked(steps.plan, wakes=("page",))
    finish_step = asked(steps.finish, wakes=("page",))
    add_metrics = asked(steps.add_metrics, wakes=("page",))

    versions = read(steps.versions)
    set_version_state = asked(steps.set_state, wakes=("train", "versions"))  # a rejected one gives its samples back
    take_back = asked(steps.take_back, wakes=("train", "versions"))
    retire_stranded = asked(steps.retire_stranded, wakes=("train",))
    forget_files = asked(steps.forget_files)
    hints = read(served.hints)
    replayed_turns = read(served.replayed)
    served_turns = read(served.served)
    was_taken_back = read(undoing.was_taken_back)

    async def put_imported(self, line: str, place: Callable[[int], WeightsRef]) -> Version:
        """A candidate that was made elsewhere; `place` puts its weights where its number says."""
        return await self._transact(lambda connection: steps.put_imported(connection, line, place, now=time.time()))

    async def undo(
        self, lesson: Lesson, *, reason: str, loaded: Collection[int] | None = None, unusable: Collection[int] = ()
    ) -> Undone:
        """Takes a lesson back: its samples for good, and the versions that learned from them."""
        undone = await self._transact(
            lambda connection: undoing.undo(
                connection, lesson, reason=reason, now=time.time(), loaded=loaded, unusable=unusable
            )
        )
        self.woken("train").set()  # what else the undone steps had waits
        self.woken("versions").set()
        return undone

    async def forget(self, lesson: Lesson, plan: Undoing) -> bool:
        """Deletes every row of the lesson's sessions; False if a step learned from them since `plan`.

        One transaction for what was learned and one for each session, so that a turn that is written meanwhile waits
        for one of them at most. Killed in between, what is left is sessions that teach nothing.
        """
        is_clear = await self._at_once(lambda connection: undoing.forget(connection, lesson, plan))
        self.woken("versions").set()
        if is_clear:
            for session in lesson.sessions:
                await self.delete_session(session)
        return is_clear

    async def delete_session(self, session: str) -> None:
        """Every row of it. Everything that is put after this call comes after the deletion."""
        self._on_delete(session)
        await self._at_once(lambda connection: self._delete(connection, session))

    def _delete(self, connection: Connection, session: str) -> None:
        lessons.delete_session(connection, session)

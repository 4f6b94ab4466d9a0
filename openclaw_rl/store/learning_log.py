"""The durable log of what is learned, for the loops of the one process that writes it.

Every method is one transaction in the store's thread, on disk when it returns. `woken(stage)` is set when there is new
work for a stage; who waits for it clears it first and looks afterwards, so that no work is overlooked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from openclaw_rl.faults import crash_point
from openclaw_rl.store import lessons, queries, served, steps, tasks, undoing
from openclaw_rl.store.steps import Waiting
from openclaw_rl.types import (
    PRESENT_MODEL,
    Baseline,
    Credit,
    Feedback,
    Json,
    JudgedTurn,
    Judgement,
    Lease,
    Lesson,
    NextState,
    ReplayedTurn,
    Sample,
    ServedTurn,
    Session,
    SessionOutline,
    Skip,
    Stage,
    Step,
    Turn,
    TurnRecord,
    Undoing,
    Undone,
    Version,
    VersionState,
)

T = TypeVar("T")


class Transact(Protocol):
    """Runs a function on the writing connection, inside one transaction."""

    def __call__(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...


class LearningLog:
    """`protocols.Lessons` on SQLite."""

    def __init__(
        self,
        transact: Transact,
        *,
        at_once: Transact | None = None,
        on_delete: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`at_once` takes its place in line before it first waits; `on_delete` is told of a session that goes."""
        self._transact = transact
        self._at_once = at_once or transact
        self._on_delete = on_delete
        self._sampled = asyncio.Event()
        self._served = asyncio.Event()
        self._woken: dict[Stage, asyncio.Event] = {"judge": asyncio.Event(), "credit": asyncio.Event()}

    @property
    def sampled(self) -> asyncio.Event:
        """Set when there may be a new sample to learn from."""
        return self._sampled

    @property
    def served(self) -> asyncio.Event:
        """Set when there may be a new turn, or a new verdict on one."""
        return self._served

    def woken(self, stage: Stage) -> asyncio.Event:
        """Set when a task of this stage may have come up."""
        return self._woken[stage]

    async def lease(
        self, stage: Stage, *, limit: int, ttl_s: float, only_closed_sessions: bool = False, min_turns: int = 1
    ) -> list[Lease]:
        """Tasks that are due, the oldest first, for this caller alone until the leases end.

        Tasks of sessions that are open, or open and shorter than `min_turns`, are left where that is asked for.
        """
        now = time.time()
        return await self._transact(
            lambda connection: tasks.lease(
                connection,
                stage,
                limit=limit,
                now=now,
                ttl_s=ttl_s,
                only_closed_sessions=only_closed_sessions,
                min_turns=min_turns,
            )
        )

    async def renew(self, leases: Sequence[Lease], *, ttl_s: float) -> list[Lease]:
        """Those that are still held, with their new end."""
        until = time.time() + ttl_s
        return await self._transact(lambda connection: tasks.renew(connection, leases, until=until))

    async def give_back(self, held: Lease, *, due_at: float, count_attempt: bool = True) -> bool:
        """Try this task again at `due_at`; an attempt, unless it was no fault of the task. False if it was lost."""
        return await self._transact(
            lambda connection: tasks.give_back(connection, held, due_at=due_at, count_attempt=count_attempt)
        )

    async def close_task(self, held: Lease) -> bool:
        """Nothing is to be done about this task. False if the lease was lost."""
        closed = await self._transact(lambda connection: tasks.finish(connection, held, now=time.time()))
        if held.stage == "judge":
            self._woken["credit"].set()  # later turns of the session may have waited for this one
        return closed

    async def release_all(self) -> int:
        """Take up what a process that is gone had leased."""
        return await self._transact(lambda connection: tasks.release_all(connection, now=time.time()))

    async def next_due(self, stage: Stage, *, after: float = 0.0) -> float | None:
        """When the next open task is due, in seconds since the epoch and later than `after`; None if there is none."""
        return await self._transact(lambda connection: tasks.next_due(connection, stage, after=after))

    async def num_open(self, stage: Stage) -> int:
        """How much work waits."""
        return await self._transact(lambda connection: tasks.num_open(connection, stage))

    async def put_judgement(self, held: Lease, judgement: Judgement) -> bool:
        """Store a judgement and end the lease, both or neither. False if the lease was lost: nothing is stored."""
        (stored,) = await self.put_judgements([(held, judgement)])
        return stored

    async def put_judgements(self, judged: Sequence[tuple[Lease, Judgement]]) -> list[bool]:
        """The same for many, at the price of one commit."""

        def put(connection: Connection, held: Lease, judgement: Judgement) -> bool:
            if not tasks.finish(connection, held, now=judgement.judged_at):
                return False
            lessons.put_judgement(connection, judgement)
            crash_point("store.in_judgement")
            return True

        stored = await self._transact(lambda connection: [put(connection, *one) for one in judged])
        self._woken["credit"].set()
        self._served.set()
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
        self._sampled.set()
        return stored

    async def get_session(self, session: str) -> Session | None:
        return await self._transact(lambda connection: queries.session(connection, session))

    async def outline(self, session: str) -> SessionOutline | None:
        """The session and its turns without their texts and ids."""
        return await self._transact(lambda connection: queries.outline(connection, session))

    async def get_turn(self, session: str, index: int) -> Turn | None:
        return await self._transact(lambda connection: queries.turn(connection, session, index))

    async def turns(self, session: str) -> list[Turn]:
        return await self._transact(lambda connection: queries.turns(connection, session))

    async def next_state(self, session: str, index: int) -> NextState | None:
        return await self._transact(lambda connection: queries.next_state(connection, session, index))

    async def feedback(self, session: str) -> list[Feedback]:
        return await self._transact(lambda connection: queries.feedback(connection, session))

    async def followed_turn(self, session: str, index: int) -> tuple[Session, TurnRecord] | None:
        """A turn with its session and what was said after it; None if there is no such turn."""

        def work(connection: Connection) -> tuple[Session, TurnRecord] | None:
            found, record = queries.session(connection, session), queries.record(connection, session, index)
            return None if found is None or record is None else (found, record)

        return await self._transact(work)

    async def judged_turn(self, session: str, index: int) -> JudgedTurn | None:
        """A turn with its newest judgement; None if it was not judged."""
        return await self._transact(lambda connection: lessons.judged_turn(connection, session, index))

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

    async def waiting(self) -> list[Waiting]:
        """The lines that have something to learn from, the one that waits longest first."""
        return await self._transact(steps.waiting)

    async def plan_step(self, step: Step) -> None:
        """The step takes its samples: no other one will."""
        await self._transact(lambda connection: steps.plan(connection, step))

    async def finish_step(self, step: Step, version: Version | None, *, blameless: bool = False) -> bool:
        """Ends a planned step together with what it made. False if it had ended before.

        A discarded step gives its samples back: in doubt, unless they are `blameless`.
        """
        return await self._transact(lambda connection: steps.finish(connection, step, version, blameless=blameless))

    async def add_metrics(self, line: str, number: int, metrics: Mapping[str, float]) -> Step | None:
        """Add what was measured of a version later to the step that made it; the step, None if there is none."""
        return await self._transact(lambda connection: steps.add_metrics(connection, line, number, metrics))

    async def planned_steps(self) -> list[Step]:
        """Steps that nobody finished; they come before any other."""
        return await self._transact(steps.planned)

    async def next_step_number(self, line: str) -> int:
        return await self._transact(lambda connection: steps.next_number(connection, line))

    async def samples_named(self, ids: Sequence[str]) -> list[Sample]:
        """These samples, in this order, without those that were deleted, or whose people opted out, since."""
        return await self._transact(lambda connection: lessons.samples_named(connection, ids))

    async def skip_samples(self, ids: Sequence[str], why: Skip) -> None:
        """No step will have these samples."""
        await self._transact(lambda connection: lessons.skip_samples(connection, ids, why))

    async def doubted_samples(self, line: str) -> list[str]:
        """Samples that wait although they were in a step that was discarded."""
        return await self._transact(lambda connection: steps.doubted(connection, line))

    async def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]:
        """Samples that the last steps on the way to a version learned from: those with a hint, if there are any."""
        return await self._transact(
            lambda connection: steps.replayable(connection, line, number=number, max_age=max_age)
        )

    async def forget_files(self, line: str, numbers: Sequence[int]) -> None:
        """The files of these versions are about to be removed."""
        await self._transact(lambda connection: steps.forget_files(connection, line, numbers))

    async def run_with(self, model: str) -> None:
        """From now on this is the present model: versions and samples of others rest until they come back."""
        await self.set_flag(PRESENT_MODEL, model)

    async def versions(self, line: str | None = None, *, every_model: bool = False) -> list[Version]:
        """Those of the present model, or of every one."""
        return await self._transact(lambda connection: steps.versions(connection, line, every_model=every_model))

    async def set_version_state(
        self,
        line: str,
        number: int,
        state: VersionState,
        *,
        reason: str = "",
        gate: Json = None,
        blameless: bool = False,
    ) -> None:
        """What the gate, or a person, says about a version. Making one live retires the one that was.

        A rejected one gives its samples back: in doubt, unless they are `blameless`.
        """
        await self._transact(
            lambda connection: steps.set_state(
                connection, line, number, state, reason=reason, gate=gate, blameless=blameless
            )
        )
        if state == "rejected":
            self._sampled.set()

    async def retire_stranded(self, line: str, *, reason: str) -> list[Version]:
        """Takes the samples back of versions that will never answer; those that were not retired before."""
        retired = await self._transact(lambda connection: steps.retire_stranded(connection, line, reason=reason))
        self._sampled.set()
        return retired

    async def was_taken_back(self, line: str, numbers: Collection[int]) -> bool:
        """Whether something that made one of these versions was given back since, or is not to be learned any more."""
        return await self._transact(lambda connection: undoing.was_taken_back(connection, line, numbers))

    async def replayed_turns(self, line: str, *, model: str, limit: int, max_tokens: int) -> list[ReplayedTurn]:
        """The last turns of a line, on which a candidate is tried; the newest first."""
        return await self._transact(
            lambda connection: served.replayed(connection, line, model=model, limit=limit, max_tokens=max_tokens)
        )

    async def served_turns(self, line: str, label: str, *, since: float, limit: int) -> list[ServedTurn]:
        """What became of the last turns of a line that a version answered; the oldest first."""
        return await self._transact(lambda connection: served.served(connection, line, label, since=since, limit=limit))

    async def undo(
        self, lesson: Lesson, *, reason: str, loaded: Collection[int] | None = None, unusable: Collection[int] = ()
    ) -> Undone:
        """Takes a lesson back: its samples for good, and the versions that learned from them.

        Not done if the version that would answer then is not among those `loaded`; None: no engine runs.
        """
        now = time.time()
        undone = await self._transact(
            lambda connection: undoing.undo(
                connection, lesson, reason=reason, now=now, loaded=loaded, unusable=unusable
            )
        )
        self._sampled.set()  # what else the undone steps had waits
        return undone

    async def forget(self, lesson: Lesson, plan: Undoing) -> bool:
        """Deletes every row of the lesson's sessions; False if a step learned from them since `plan`.

        Everything that is put after this call comes after the deletion.
        """
        for session in lesson.sessions:
            self._on_delete(session)
        return await self._at_once(lambda connection: undoing.forget(connection, lesson, plan))

    async def put_imported(self, line: str, place: Callable[[int], tuple[str, str]]) -> Version:
        """A candidate that was made elsewhere; `place` puts its files where its number says."""
        now = time.time()
        return await self._transact(lambda connection: steps.put_imported(connection, line, place, now=now))

    async def sessions_of(self, user: str) -> list[str]:
        """The names of all sessions of a user."""
        return await self._transact(lambda connection: [one.session.id for one in queries.sessions(connection, user)])

    async def delete_session(self, session: str) -> None:
        """Every row of it, overwritten; the log holds them until it is emptied.

        Everything that is put after this call comes after the deletion.
        """
        self._on_delete(session)
        await self._at_once(lambda connection: lessons.delete_session(connection, session))

    async def sessions_older_than(self, last_seen_at: float, *, limit: int = 100) -> list[str]:
        """Closed sessions that nobody has come back to since."""
        return await self._transact(lambda connection: lessons.sessions_older_than(connection, last_seen_at, limit))

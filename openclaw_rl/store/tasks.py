"""Work on turns: who may do it, until when, and what is left. Blocking; inside a transaction that somebody else opened.

A task is open while more evidence is wanted than done. Leasing it moves `due_at` to the end of the lease and raises
`token`: whoever leased it before can neither renew nor finish it any more. A task that is open and overdue can be
leased, whatever became of who had it; so work is done at least once, and counted exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, ScalarSelect, and_, exists, func, or_, select, update

from openclaw_rl.store import schema
from openclaw_rl.types import Lease, Stage

_task = schema.task.c
_other = schema.task.alias("other").c


def lease(
    connection: Connection,
    stage: Stage,
    *,
    limit: int,
    now: float,
    ttl_s: float,
    only_closed_sessions: bool = False,
    min_turns: int = 1,
) -> list[Lease]:
    """The open tasks that are due, the oldest first, each leased to the caller for `ttl_s`.

    Credit waits while an earlier turn of the session, or any turn of a closed one, is still with the judge: what that
    turn came to may belong to this one's credit. Open sessions of fewer than `min_turns` turns may still grow.
    """
    which = and_(_open(stage), _task.due_at <= now)
    closed = exists().where(schema.session.c.id == _task.session, schema.session.c.closed_at.is_not(None))
    if stage == "credit":
        which = and_(which, ~_is_being_judged(None if only_closed_sessions else _task.index))
    if only_closed_sessions:
        which = and_(which, closed)
    elif min_turns > 1:
        which = and_(which, or_(closed, _num_main_turns() >= min_turns))
    rows = connection.execute(select(schema.task).where(which).order_by(_task.due_at).limit(limit)).mappings().all()
    leases = [
        Lease(
            stage=stage,
            session=row["session"],
            index=row["index"],
            num_evidence=row["wanted"],
            attempts=row["attempts"],
            token=row["token"] + 1,
            until=now + ttl_s,
        )
        for row in rows
    ]
    for held in leases:
        changes = update(schema.task).where(_same_turn(held)).values(token=held.token, due_at=held.until)
        connection.execute(changes)
    return leases


def renew(connection: Connection, leases: Sequence[Lease], *, until: float) -> list[Lease]:
    """Those of the leases that are still held, with their new end."""
    changes = update(schema.task).values(due_at=until)
    return [replace(one, until=until) for one in leases if connection.execute(changes.where(_holds(one))).rowcount]


def give_back(connection: Connection, held: Lease, *, due_at: float, count_attempt: bool) -> bool:
    """The task was not finished: it is due again at `due_at`. False if the lease was lost."""
    changes = {"due_at": due_at, "attempts": _task.attempts + count_attempt}
    return bool(connection.execute(update(schema.task).where(_holds(held)).values(changes)).rowcount)


def finish(connection: Connection, held: Lease, *, now: float) -> bool:
    """What was known when it was leased is done; what arrived since stays open. False if the lease was lost."""
    changes = {"done": held.num_evidence, "attempts": 0, "due_at": now}
    return bool(connection.execute(update(schema.task).where(_holds(held)).values(changes)).rowcount)


def release_all(connection: Connection, *, now: float) -> int:
    """Every lease ends now. For the one process that may write, at its start: whoever had them is gone."""
    changes = update(schema.task).where(_task.wanted > _task.done, _task.due_at > now, _task.attempts == 0)
    return connection.execute(changes.values(due_at=now)).rowcount


def next_due(connection: Connection, stage: Stage, *, after: float = 0.0) -> float | None:
    """When the next open task is due, of those that are due later than `after`; None if there is none."""
    due: float | None = connection.scalar(select(func.min(_task.due_at)).where(_open(stage), _task.due_at > after))
    return due


def num_open(connection: Connection, stage: Stage) -> int:
    return connection.scalar(select(func.count()).select_from(schema.task).where(_open(stage))) or 0


def _open(stage: Stage) -> ColumnElement[bool]:
    return and_(_task.stage == stage, _task.wanted > _task.done)


def _is_being_judged(before: ColumnElement[int] | None) -> ColumnElement[bool]:
    """Whether the judge still has a turn of the task's session, or one of those before a certain one."""
    which = and_(_other.stage == "judge", _other.session == _task.session, _other.wanted > _other.done)
    return exists().where(which if before is None else and_(which, _other.index < before))


def _num_main_turns() -> ScalarSelect[int]:
    turn = schema.turn.c
    return select(func.count()).where(turn.session == _task.session, turn.kind == "main").scalar_subquery()


def _same_turn(held: Lease) -> ColumnElement[bool]:
    return and_(_task.stage == held.stage, _task.session == held.session, _task.index == held.index)


def _holds(held: Lease) -> ColumnElement[bool]:
    return and_(_same_turn(held), _task.token == held.token)

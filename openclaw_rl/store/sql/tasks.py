"""Work on turns: who may do it, until when, and what is left. Blocking; inside a transaction that somebody else opened.

A task is open while more evidence is wanted than done. Leasing it moves `due_at` to the end of the lease, raises
`token` and names the owner: whoever leased it before can neither renew nor finish it any more. A task that is open and
overdue can be leased, whatever became of its owner; so work is done at least once, and counted exactly once.

Episodes of one group are weighed against each other. The credit tasks of their turns are leased when the group is
complete, and then all of them together, whatever the limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    ScalarSelect,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from openclaw_rl.store.sql import schema
from openclaw_rl.store.sql.episodes import of_line
from openclaw_rl.store.sql.upsert import proposed, upsert
from openclaw_rl.types import Judgement, Lease, Skip, Stage

LOCAL_OWNER = "local:"
"""How owners begin that are runs of the one process that writes; the writer's lock says that earlier ones are dead."""

_KEYS = ("stage", "session", "index")
_task = schema.task.c
_other = schema.task.alias("other").c
_session, _episode = schema.session.c, schema.episode.c
_mate, _attempt = schema.session.alias("mate").c, schema.episode.alias("attempt").c
_group: ScalarSelect[str] = (
    select(_episode.group)
    .join(schema.session, _session.episode == _episode.id)
    .where(_session.id == _task.session)
    .correlate(schema.task)
    .scalar_subquery()
)
"""The group of the task's session; NULL where the session belongs to no episode."""


def lease(
    connection: Connection,
    stage: Stage,
    *,
    owner: str,
    limit: int,
    now: float,
    ttl_s: float,
    only_closed_sessions: bool = False,
    min_turns: int = 1,
) -> list[Lease]:
    """The open tasks that are due, the oldest first, each leased to `owner` for `ttl_s`.

    Credit waits while an earlier turn of the session, or any turn of a closed one, is still with the judge: what that
    turn came to may belong to this one's credit. Open sessions of fewer than `min_turns` turns may still grow.
    """
    which = and_(_open(stage), _task.due_at <= now)
    closed = exists().where(_session.id == _task.session, _session.closed_at.is_not(None))
    if stage == "credit":
        which = and_(which, ~_is_being_judged(None if only_closed_sessions else _task.index), ~_group_lacks(now))
    if only_closed_sessions:
        which = and_(which, closed)
    elif min_turns > 1:
        which = and_(which, or_(closed, _num_main_turns() >= min_turns))
    query = select(schema.task, _group.label("group")).where(which).order_by(_task.due_at)
    rows = connection.execute(query.limit(limit)).mappings().all()
    groups = {row["group"] for row in rows} - {None}
    if stage == "credit" and groups:
        rows = [row for row in rows if row["group"] is None]
        rows += connection.execute(query.where(_group.in_(groups))).mappings().all()
    leases = [
        Lease(
            stage=stage,
            session=row["session"],
            index=row["index"],
            num_evidence=row["wanted"],
            attempts=row["attempts"],
            token=row["token"] + 1,
            until=now + ttl_s,
            owner=owner,
        )
        for row in rows
    ]
    for held in leases:
        changes = {"token": held.token, "due_at": held.until, "owner": owner}
        connection.execute(update(schema.task).where(_same_turn(held)).values(changes))
    return leases


def insert_evidence(dialect: str) -> Insert:
    """Evidence on a turn makes the judge's task, or opens it again: that many more pieces are wanted."""
    new = proposed(dialect, schema.task)
    changes = {"wanted": _task.wanted + new.wanted, "attempts": 0, "due_at": _earlier(new.due_at)}
    return upsert(dialect, schema.task, _KEYS, changes=changes)


def evidence_rows(arrived: Iterable[tuple[str, int, float]]) -> list[dict[str, Any]]:
    """The rows of `insert_evidence` for evidence that was stored just now: its turn, and when it came."""
    times: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for session, index, at in arrived:
        times[session, index].append(at)
    return [_new_task("judge", *turn, wanted=len(at), due_at=min(at)) for turn, at in times.items()]


def insert_end() -> Insert:
    """The judge's task for a turn (`session`, `index`) whose session ended, where it has none: nothing followed it."""
    turn = schema.turn.c
    this = (turn.session == bindparam("session"), turn.index == bindparam("index"))
    row = _new_task("judge", "", 0, wanted=1, due_at=0.0)
    new = select(
        *(cast(turn[name] if name in ("session", "index") else literal(row[name]), _task[name].type) for name in row)
    )
    is_new = ~exists().where(_other.stage == "judge", _other.session == turn.session, _other.index == turn.index)
    return insert(schema.task).from_select(list(row), new.where(*this, turn.skip == Skip.NO_NEXT_STATE, is_new))


def put_judged(connection: Connection, judgement: Judgement) -> None:
    """A judgement makes the credit's task, or opens it again if it knows more than the one before."""
    new = proposed(connection.dialect.name, schema.task)
    wanted = case((new.wanted > _task.wanted, new.wanted), else_=_task.wanted)
    changes = {"wanted": wanted, "attempts": 0, "due_at": _earlier(new.due_at)}
    row = _new_task(
        "credit", judgement.session, judgement.index, wanted=judgement.num_evidence, due_at=judgement.judged_at
    )
    connection.execute(upsert(connection.dialect.name, schema.task, _KEYS, changes=changes).values(row))


def _new_task(stage: Stage, session: str, index: int, *, wanted: int, due_at: float) -> dict[str, Any]:
    named = {"stage": stage, "session": session, "index": index, "wanted": wanted, "due_at": due_at}
    return {**named, "done": 0, "attempts": 0, "token": 0, "owner": ""}


def _earlier(due_at: ColumnElement[float]) -> ColumnElement[float]:
    return case((due_at < _task.due_at, due_at), else_=_task.due_at)


def renew(connection: Connection, leases: Sequence[Lease], *, until: float) -> list[Lease]:
    """Those of the leases that are still held, with their new end."""
    changes = update(schema.task).values(due_at=until)
    return [replace(one, until=until) for one in leases if connection.execute(changes.where(_holds(one))).rowcount]


def give_back(connection: Connection, held: Lease, *, due_at: float, count_attempt: bool = True) -> bool:
    """The task is due again at `due_at`, after one more attempt if that counts. False if the lease was lost."""
    changes = {"due_at": due_at, "attempts": _task.attempts + int(count_attempt), "owner": ""}
    return bool(connection.execute(update(schema.task).where(_holds(held)).values(changes)).rowcount)


def finish(connection: Connection, held: Lease, *, now: float) -> bool:
    """What was known when it was leased is done; what arrived since stays open. False if the lease was lost."""
    changes = {"done": held.num_evidence, "attempts": 0, "due_at": now, "owner": ""}
    return bool(connection.execute(update(schema.task).where(_holds(held)).values(changes)).rowcount)


def release_earlier(connection: Connection, *, owner: str, now: float) -> int:
    """Ends the leases of earlier runs of the process that writes; workers elsewhere keep theirs until they expire."""
    theirs = (_task.owner.startswith(LOCAL_OWNER), _task.owner != owner)
    changes = update(schema.task).where(_task.wanted > _task.done, _task.due_at > now, *theirs)
    return connection.execute(changes.values(due_at=now, owner="")).rowcount


def next_due(connection: Connection, stage: Stage, *, after: float = 0.0) -> float | None:
    """When the next open task is due, of those that are due later than `after`; None if there is none."""
    due: float | None = connection.scalar(select(func.min(_task.due_at)).where(_open(stage), _task.due_at > after))
    return due


def num_open(connection: Connection, stage: Stage, line: str | None = None) -> int:
    """Of one line, or of all."""
    query = select(func.count()).select_from(schema.task).where(_open(stage))
    if line is not None:
        session = schema.session.c
        query = query.where(_task.session.in_(select(session.id).where(of_line(line))))
    return connection.scalar(query) or 0


def _open(stage: Stage) -> ColumnElement[bool]:
    return and_(_task.stage == stage, _task.wanted > _task.done)


def _is_being_judged(before: ColumnElement[int] | None) -> ColumnElement[bool]:
    """Whether the judge still has a turn of the task's session, or one of those before a certain one."""
    which = and_(_other.stage == "judge", _other.session == _task.session, _other.wanted > _other.done)
    return exists().where(which if before is None else and_(which, _other.index < before))


def _group_lacks(now: float) -> ColumnElement[bool]:
    """Whether the group of the task's session is incomplete, or a part of its credit is leased or waits.

    A group is complete when `group_size` of its episodes have an outcome, and all sessions of its episodes are closed
    and judged. False for a session without an episode.
    """
    in_group = (_attempt.group == _episode.group, _attempt.id == _mate.episode)
    ended = (_attempt.group == _episode.group, _attempt.ended_at.is_not(None))
    num_ended = select(func.count()).where(*ended).correlate(schema.episode).scalar_subquery()
    mates_task = and_(_other.session == _mate.id, _other.wanted > _other.done)
    with_judge, held = _other.stage == "judge", and_(_other.stage == "credit", _other.due_at > now)
    return exists().where(
        _session.id == _task.session,
        _episode.id == _session.episode,
        or_(
            num_ended < _episode.group_size,
            exists().where(*in_group, _mate.closed_at.is_(None)),
            exists().where(*in_group, mates_task, or_(with_judge, held)),
        ),
    )


def _num_main_turns() -> ScalarSelect[int]:
    turn = schema.turn.c
    return select(func.count()).where(turn.session == _task.session, turn.kind == "main").scalar_subquery()


def _same_turn(held: Lease) -> ColumnElement[bool]:
    return and_(_task.stage == held.stage, _task.session == held.session, _task.index == held.index)


def _holds(held: Lease) -> ColumnElement[bool]:
    return and_(_same_turn(held), _task.token == held.token)

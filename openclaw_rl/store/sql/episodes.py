"""Attempts at tasks, and their outcomes, to rows and back. Blocking; on the connection it is given."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, exists, insert, literal, or_, select, update

from openclaw_rl.errors import StoreError
from openclaw_rl.store.sql import schema
from openclaw_rl.types import Episode, Outcome, line_kind

_episode, _session = schema.episode.c, schema.session.c

StoredAttempt = tuple[Episode, Outcome | None, list[str]]
"""An episode, how it ended (None: it has not), and the ids of its sessions in the order in which they were opened."""


def put_episode(connection: Connection, put: Episode) -> bool:
    """False if the same episode is there already; `StoreError` if another one has its id."""
    known = episode(connection, put.id)
    if known is None:
        connection.execute(insert(schema.episode).values(asdict(put)))
    elif known[0] != put:
        raise StoreError(f"episode {put.id} is already stored as another attempt; give each attempt its own id")
    return known is None


def put_outcome(connection: Connection, outcome: Outcome) -> bool:
    """False if the episode has an outcome already: the first one stays. `StoreError` if there is no such episode."""
    known = episode(connection, outcome.episode)
    if known is None:
        raise StoreError(f"there is no episode {outcome.episode}; put it before its outcome")
    changes = {"reward": outcome.reward, "failure": outcome.failure, "ended_at": outcome.ended_at}
    this = (_episode.id == outcome.episode, _episode.ended_at.is_(None))
    if not connection.execute(update(schema.episode).where(*this).values(changes)).rowcount:
        return False
    _want_credit(connection, outcome)
    return True


def _want_credit(connection: Connection, outcome: Outcome) -> None:
    """An outcome speaks for every main turn of its episode: those that nobody judges get a task for credit too."""
    turn, task = schema.turn.c, schema.task.c
    named = and_(task.stage == "credit", task.session == turn.session, task.index == turn.index)
    new = {
        "stage": "credit",
        "wanted": 1,
        "done": 0,
        "attempts": 0,
        "token": 0,
        "due_at": outcome.ended_at,
        "owner": "",
    }
    theirs = (
        select(turn.session, turn.index, *(literal(value) for value in new.values()))
        .join(schema.session, _session.id == turn.session)
        .where(_session.episode == outcome.episode, turn.kind == "main", ~exists().where(named))
    )
    connection.execute(insert(schema.task).from_select(["session", "index", *new], theirs))


def of_line(line: str) -> ColumnElement[bool]:
    """Of a row of `session`: whether it teaches this line (`types.line_of`, in SQL)."""
    if line_kind(line) != "environment":
        return and_(_session.user == line, _session.episode.is_(None))
    name = line.removeprefix("env:")
    return _session.episode.in_(select(_episode.id).where(_episode.environment == name))


def episode(connection: Connection, episode_id: str) -> tuple[Episode, Outcome | None] | None:
    """An episode and how it ended; None if there is none of this id."""
    row = connection.execute(select(schema.episode).where(_episode.id == episode_id)).mappings().one_or_none()
    return None if row is None else (_to_episode(row), _to_outcome(row))


def group(connection: Connection, name: str) -> list[StoredAttempt]:
    """The episodes of a group that were begun, by their attempt."""
    query = select(schema.episode).where(_episode.group == name).order_by(_episode.attempt, _episode.id)
    rows = connection.execute(query).mappings().all()
    theirs = select(_session.episode, _session.id).where(_session.episode.in_([row["id"] for row in rows]))
    sessions: dict[str, list[str]] = {row["id"]: [] for row in rows}
    for episode_id, session in connection.execute(theirs.order_by(_session.opened_at, _session.id)):
        sessions[episode_id].append(session)
    return [(_to_episode(row), _to_outcome(row), sessions[row["id"]]) for row in rows]


def unfinished(connection: Connection) -> list[Episode]:
    """The episodes without an outcome."""
    rows = connection.execute(select(schema.episode).where(_episode.ended_at.is_(None)).order_by(_episode.id))
    return [_to_episode(row) for row in rows.mappings()]


def _to_episode(row: RowMapping) -> Episode:
    return Episode(**{name: row[name] for name in Episode.__dataclass_fields__})


def _to_outcome(row: RowMapping) -> Outcome | None:
    if row["ended_at"] is None:
        return None
    return Outcome(episode=row["id"], ended_at=row["ended_at"], reward=row["reward"], failure=row["failure"])


def sessions_of(connection: Connection, name: str) -> list[str]:
    """The ids of all sessions of a user, or of another line."""
    query = select(_session.id).where(or_(_session.user == name, of_line(name)))
    return list(connection.scalars(query.order_by(_session.opened_at, _session.id)))

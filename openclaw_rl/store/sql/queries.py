"""What is in the log, as nouns again. Blocking; each function reads from the connection, and its snapshot, it is given.

The reader and the writer ask the same questions here; how a row becomes a turn is in `decode.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import orjson
from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, cast, func, or_, select

from openclaw_rl.store.sql import schema
from openclaw_rl.store.sql.codec import split_digests
from openclaw_rl.store.sql.decode import Bodies, decode_turn, rebuild
from openclaw_rl.types import (
    ApiKey,
    Episode,
    Feedback,
    KeyTerms,
    NextState,
    Session,
    SessionOutline,
    SessionSummary,
    Skip,
    Turn,
    TurnOutline,
    TurnRecord,
)

T = TypeVar("T")

_IN_ONE_QUERY = 1000
"""Values in one IN (...): far below what any database allows in one statement."""


_OF_EPISODE = "episode_"
SESSIONS = select(
    schema.session,
    *(schema.episode.c[name].label(_OF_EPISODE + name) for name in Episode.__dataclass_fields__),
).outerjoin(schema.episode, schema.episode.c.id == schema.session.c.episode)
"""Sessions, each with the episode that it belongs to."""


def keys(connection: Connection) -> list[ApiKey]:
    """All keys, revoked ones too."""
    query = select(schema.api_key).order_by(schema.api_key.c.created_at)
    rows = connection.execute(query).mappings()
    return [ApiKey(**{**row, "terms": KeyTerms.from_json(orjson.loads(row["terms"]))}) for row in rows]


def names(connection: Connection) -> dict[str, list[int]]:
    """Every session's name and the numbers of its turns, without a look at what is in them."""
    found: dict[str, list[int]] = {name: [] for name in connection.scalars(select(schema.session.c.id))}
    turn = schema.turn.c
    for name, index in connection.execute(select(turn.session, turn.index).order_by(turn.session, turn.index)):
        found.setdefault(name, []).append(index)
    return found


def session(connection: Connection, session_id: str) -> Session | None:
    row = connection.execute(SESSIONS.where(schema.session.c.id == session_id)).mappings().first()
    return None if row is None else to_session(row)


def find_session(connection: Connection, user: str, name: str) -> SessionOutline | None:
    """The session that this user's client calls by this name: one it chose itself, else an id of ours."""
    session = schema.session.c
    found = _outlines(connection, and_(session.user == user, or_(session.key == name, session.id == name)))
    return min(found, key=lambda one: one.session.key != name, default=None)


def outline(connection: Connection, session_id: str) -> SessionOutline | None:
    """A session and its turns, without their texts and ids."""
    found = _outlines(connection, schema.session.c.id == session_id)
    return found[0] if found else None


def turn_owner(connection: Connection, session_id: str, index: int) -> str | None:
    """The user of a turn; None if there is no such turn."""
    turn = schema.turn.c
    owner: str | None = connection.scalar(
        select(schema.session.c.user)
        .join(schema.turn, turn.session == schema.session.c.id)
        .where(turn.session == session_id, turn.index == index)
    )
    return owner


def sessions(connection: Connection, user: str | None = None) -> list[SessionSummary]:
    """All sessions, or those of one user, the one seen last first."""
    query, counts = SESSIONS.order_by(schema.session.c.last_seen_at.desc(), schema.session.c.id), _counts()
    if user is not None:
        query = query.where(schema.session.c.user == user)
        counts = counts.join(schema.session).where(schema.session.c.user == user)
    per_session = _by_session(connection, counts)
    return [_summary(to_session(row), per_session.get(row["id"], [])) for row in connection.execute(query).mappings()]


def summaries(connection: Connection, sessions: Sequence[Session]) -> list[SessionSummary]:
    """What happened in each of these sessions."""
    counts = _counts().where(schema.turn.c.session.in_([one.id for one in sessions]))
    per_session = _by_session(connection, counts)
    return [_summary(one, per_session.get(one.id, [])) for one in sessions]


def open_sessions(connection: Connection) -> list[SessionOutline]:
    """The sessions that nobody has closed, the one seen last at the end."""
    return _outlines(connection, schema.session.c.closed_at.is_(None))


def private_chains(connection: Connection) -> list[str]:
    """What names the answers of ended sessions that opted out."""
    session, turn = schema.session.c, schema.turn.c
    query = select(turn.chain).join(schema.session, session.id == turn.session)
    return list(connection.scalars(query.where(session.opted_out, session.closed_at.is_not(None))))


def turns(connection: Connection, session_id: str) -> list[Turn]:
    """All turns of a session in order."""
    query = select(schema.turn).where(schema.turn.c.session == session_id).order_by(schema.turn.c.index)
    wholes = rebuild(connection.execute(query).mappings())
    stored = connection.execute(select(schema.message).where(schema.message.c.session == session_id))
    bodies = Bodies({row.digest: row.body for row in stored})
    return [decode_turn(whole, bodies) for whole in wholes.values()]


def turn(connection: Connection, session_id: str, index: int) -> Turn | None:
    """One turn; reads only the ancestors that it is rebuilt from."""
    lineage = _lineage(connection, session_id, index)
    if not lineage:
        return None
    column = schema.turn.c
    query = select(schema.turn).where(column.session == session_id).order_by(column.index)
    parts = [connection.execute(query.where(column.index.in_(part))).mappings() for part in _parts(lineage)]
    whole = rebuild(row for part in parts for row in part)[index]
    return decode_turn(whole, _bodies(connection, session_id, whole.digests))


def next_states(connection: Connection, session_id: str) -> list[NextState]:
    """What followed each turn of a session, in the order of the turns."""
    state = schema.next_state
    query = select(state).where(state.c.session == session_id).order_by(state.c.index)
    return _next_states(connection, session_id, query)


def next_state(connection: Connection, session_id: str, index: int) -> NextState | None:
    state = schema.next_state
    query = select(state).where(state.c.session == session_id, state.c.index == index)
    return next(iter(_next_states(connection, session_id, query)), None)


def feedback(connection: Connection, session_id: str) -> list[Feedback]:
    """What people said about the turns of a session, in the order they said it."""
    table = schema.feedback
    query = select(*(column for column in table.columns if column.name != "digest"))
    query = query.where(table.c.session == session_id).order_by(table.c.given_at, table.c.index)
    return [Feedback(**row) for row in connection.execute(query).mappings()]


def num_feedback(connection: Connection, session_id: str, index: int) -> int:
    table = schema.feedback
    query = select(func.count()).select_from(table).where(table.c.session == session_id, table.c.index == index)
    return connection.execute(query).scalar_one()


def record(connection: Connection, session_id: str, index: int) -> TurnRecord | None:
    """One turn, and what was said after it."""
    found = turn(connection, session_id, index)
    if found is None:
        return None
    given = tuple(said for said in feedback(connection, session_id) if said.index == index)
    return TurnRecord(turn=found, next_state=next_state(connection, session_id, index), feedback=given)


def followed_turn(connection: Connection, session_id: str, index: int) -> tuple[Session, TurnRecord] | None:
    """A turn with its session and what was said after it; None if there is no such turn."""
    found, of_turn = session(connection, session_id), record(connection, session_id, index)
    return None if found is None or of_turn is None else (found, of_turn)


def records(connection: Connection, session_id: str) -> list[TurnRecord]:
    """All turns of a session in order, each with what was said after it."""
    states = {state.index: state for state in next_states(connection, session_id)}
    said = feedback(connection, session_id)
    return [
        TurnRecord(
            turn=each,
            next_state=states.get(each.index),
            feedback=tuple(given for given in said if given.index == each.index),
        )
        for each in turns(connection, session_id)
    ]


def skips(connection: Connection) -> dict[Skip, int]:
    """How many turns are not learned from, by the reason; the commonest first."""
    turn, credit = schema.turn.c, schema.credit.c
    reason = func.coalesce(credit.skip, turn.skip)
    query = select(reason, func.count()).select_from(schema.turn)
    query = query.outerjoin(schema.credit, and_(credit.session == turn.session, credit.index == turn.index))
    rows = connection.execute(query.where(reason.is_not(None)).group_by(reason).order_by(func.count().desc(), reason))
    return {Skip(name): count for name, count in rows}


def to_session(row: RowMapping) -> Session:
    """A row of `SESSIONS` as a noun."""
    own = {name: row[name] for name in Session.__dataclass_fields__}
    of = {name: row[_OF_EPISODE + name] for name in Episode.__dataclass_fields__}
    return Session(**{**own, "episode": None if row["episode"] is None else Episode(**of)})


def _counts() -> Select[Any]:
    turn = schema.turn.c
    return select(
        turn.session,
        turn.kind,
        turn.versions,
        func.count().label("turns"),
        cast(func.sum(turn.num_sampled), schema.Integer).label("tokens"),
        func.max(turn.finished_at).label("last_turn_at"),
    ).group_by(turn.session, turn.kind, turn.versions)


def _by_session(connection: Connection, counts: Select[Any]) -> dict[str, list[RowMapping]]:
    per_session: dict[str, list[RowMapping]] = {}
    for row in connection.execute(counts).mappings():
        per_session.setdefault(row["session"], []).append(row)
    return per_session


def _summary(session: Session, counts: Sequence[RowMapping]) -> SessionSummary:
    return SessionSummary(
        session=session,
        main_turns=sum(row["turns"] for row in counts if row["kind"] == "main"),
        side_turns=sum(row["turns"] for row in counts if row["kind"] == "side"),
        tokens=sum(row["tokens"] for row in counts),
        versions=tuple(sorted({version for row in counts for version in orjson.loads(row["versions"])})),
        last_turn_at=max((row["last_turn_at"] for row in counts), default=None),
    )


def _outlines(connection: Connection, which: ColumnElement[bool]) -> list[SessionOutline]:
    turn, state = schema.turn, schema.next_state
    same_turn = and_(state.c.session == turn.c.session, state.c.index == turn.c.index)
    query = (
        select(
            *(turn.c[name] for name in TurnOutline.__dataclass_fields__ if name in turn.c),
            turn.c.session,
            state.c.index.is_not(None).label("has_next_state"),
            (turn.c.tools != b"").label("has_tools"),
        )
        .join(schema.session, schema.session.c.id == turn.c.session)
        .outerjoin(state, same_turn)
        .where(which)
        .order_by(turn.c.session, turn.c.index)
    )
    rows = connection.execute(query).mappings()
    turns = {name: tuple(map(_outline, group)) for name, group in groupby(rows, key=lambda row: row["session"])}
    found = connection.execute(SESSIONS.where(which).order_by(schema.session.c.last_seen_at))
    return [SessionOutline(session=to_session(row), turns=turns.get(row["id"], ())) for row in found.mappings()]


def _outline(row: RowMapping) -> TurnOutline:
    return TurnOutline(**{name: row[name] for name in TurnOutline.__dataclass_fields__})


def _lineage(connection: Connection, session_id: str, index: int) -> list[int]:
    """The turn and the ancestors that it shares something with, oldest first; empty if there is no such turn."""
    column = schema.turn.c
    links = select(column.index, column.parent, column.prompt_shared + column.messages_shared)
    rows = connection.execute(links.where(column.session == session_id, column.index <= index))
    parents = {at: parent if shared else None for at, parent, shared in rows}
    lineage, at = [], index if index in parents else None
    while at is not None:
        lineage.append(at)
        at = parents.get(at)
    return lineage[::-1]


def _next_states(connection: Connection, session_id: str, query: Select[tuple[object, ...]]) -> list[NextState]:
    rows = connection.execute(query).mappings().all()
    bodies = _bodies(connection, session_id, {digest for row in rows for digest in split_digests(row["messages"])})
    return [
        NextState(
            session=session_id,
            index=row["index"],
            arrived_at=row["arrived_at"],
            messages=bodies.messages(row["messages"]),
        )
        for row in rows
    ]


def _bodies(connection: Connection, session_id: str, digests: Collection[bytes]) -> Bodies:
    return Bodies(stored_bodies(connection, session_id, digests))


def stored_bodies(connection: Connection, session_id: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
    """What these digests stand for in a session."""
    column = schema.message.c
    query = select(column.digest, column.body).where(column.session == session_id)
    parts = [connection.execute(query.where(column.digest.in_(part))) for part in _parts(list(digests))]
    return {row.digest: row.body for part in parts for row in part}


def _parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _IN_ONE_QUERY):
        yield values[start : start + _IN_ONE_QUERY]

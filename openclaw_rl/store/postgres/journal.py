"""What one process tells the others that hold sessions and keys in memory: rows of `change`, in the order of commits.

A row is written with what it tells of, so whoever reads the journal after an answer was acknowledged finds that answer
in it. Blocking; on the connection, and its transaction, given.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from openclaw_rl.store.sql import schema

Kind = Literal["session", "gone", "keys"]

KEPT_S = 86_400.0

_change, _place = schema.change.c, schema.place.c


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """`name` is a session's id; empty for the keys."""

    seq: int
    kind: Kind
    name: str
    origin: str
    at: float


def tell(connection: Connection, origin: str, changes: Iterable[tuple[Kind, str]]) -> None:
    """To be called inside the transaction that makes the change."""
    now = time.time()
    rows = [{"kind": kind, "name": name, "origin": origin, "at": now} for kind, name in dict.fromkeys(changes)]
    if rows:
        connection.execute(insert(schema.change), rows)


def since(connection: Connection, seq: int, *, only: Kind | None = None) -> Sequence[JournalEntry]:
    """What was told after this number, in order."""
    query = select(schema.change).where(_change.seq > seq)
    if only is not None:
        query = query.where(_change.kind == only)
    return [JournalEntry(**row) for row in connection.execute(query.order_by(_change.seq)).mappings()]


def last(connection: Connection) -> int:
    return connection.scalar(select(func.max(_change.seq))) or 0


def first(connection: Connection) -> int:
    """The oldest number that is still there; 0 if none is."""
    return connection.scalar(select(func.min(_change.seq))) or 0


def trim(connection: Connection) -> None:
    """Deletes what everybody has read; the newest row stays, so that numbers are never given twice."""
    old = _change.at < time.time() - KEPT_S
    connection.execute(delete(schema.change).where(old, _change.seq < select(func.max(_change.seq)).scalar_subquery()))


def leave(connection: Connection, session: str, origin: str) -> None:
    """A session goes: nobody keeps it, and its name stands in the journal for that alone."""
    mine = (_change.name == session, _change.kind == "session")
    connection.execute(delete(schema.change).where(*mine))
    connection.execute(delete(schema.place).where(_place.session == session))
    tell(connection, origin, [("gone", session)])


def reserve(connection: Connection, session: str, index: int, count: int) -> int:
    """The first of `count` turn numbers in a row that nobody else gets, `index` or higher."""
    new = upsert(schema.place).values(session=session, next_index=index + count)
    taken = new.on_conflict_do_update(
        index_elements=["session"], set_={"next_index": func.greatest(_place.next_index, index) + count}
    )
    return int(connection.execute(taken.returning(_place.next_index)).scalar_one()) - count

"""A batch of writes to SQL, inside a transaction that somebody else opened. Blocking; knows no queue and no clock.

The writes of many sessions are interleaved. To put them into few statements they are done per table; to keep their
order where it matters the batch is cut into segments, in which no row is touched twice except in the order of `Op`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.dialects.sqlite import insert

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store import schema
from openclaw_rl.store.encode import Op, Write
from openclaw_rl.store.sqlite import InsertRows, UpdateRows, fetch_value
from openclaw_rl.types import turn_id

Outcome = bool | StoreError
"""Whether the write changed the database (False: what it says stands there already), or why it was refused."""


def _upsert(table: Table, keys: Sequence[str], only_where: ColumnElement[bool] | None = None) -> InsertRows:
    """Insert, or replace every column of the row with these keys where `only_where` admits it."""
    statement = insert(table)
    replaced = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    return InsertRows(statement.on_conflict_do_update(index_elements=keys, set_=replaced, where=only_where))


def _insert_once(table: Table) -> InsertRows:
    return InsertRows(insert(table).on_conflict_do_nothing())


_TURN_KEYS = ("session", "index")
_BODIES = _insert_once(schema.message)
_STANDING_DIGEST = 'SELECT digest FROM turn WHERE session = ? AND "index" = ?'
_TAKE_BACK = UpdateRows("turn", "complete", keys=(*_TURN_KEYS, "digest"), only_where="complete")
_STATEMENTS: Mapping[Op, InsertRows | UpdateRows] = {
    Op.KEY: InsertRows(insert(schema.api_key)),
    Op.SESSION: _upsert(schema.session, ["id"]),
    Op.TURN: _upsert(schema.turn, _TURN_KEYS, only_where=schema.turn.c.complete.is_(False)),
    Op.NEXT_STATE: _insert_once(schema.next_state),
    Op.FEEDBACK: _insert_once(schema.feedback),
    Op.DELIVERED: UpdateRows("turn", "delivered", keys=_TURN_KEYS, only_where="NOT delivered"),
    Op.SKIP: UpdateRows("turn", "skip", keys=_TURN_KEYS, only_where="skip IS NULL"),
    Op.CLOSE: UpdateRows("session", "closed_at", keys=["id"], only_where="closed_at IS NULL"),
    Op.REVOKE: UpdateRows("api_key", "revoked_at", keys=["id"], only_where="revoked_at IS NULL"),
}


class TurnStands(Exception):
    """One turn of many met a complete one in its place: they have to be written one by one."""


def apply(connection: Connection, writes: Sequence[Write]) -> list[Outcome]:
    """Do all writes; one outcome for each. Raises if the database refuses a statement: then none of them is done."""
    for segment in _segments(writes):
        by_op: defaultdict[Op, list[Write]] = defaultdict(list)
        for write in segment:
            by_op[write.op].append(write)
        for op in sorted(by_op):
            group = by_op[op]
            bodies = [body for write in group for body in write.bodies]
            if bodies:
                _BODIES.run(connection, bodies)
            num_changed = _STATEMENTS[op].run(connection, [write.row for write in group])
            if op is Op.TURN and num_changed != len(group):
                if len(writes) > 1:
                    raise TurnStands
                return [_standing(connection, group[0])]
            crash_point("store.mid_batch")
    return [True] * len(writes)


def take_back(connection: Connection, writes: Sequence[Write]) -> None:
    """Let those of these that are turns, should they be there although their commit failed, be replaced again."""
    _TAKE_BACK.run(connection, [{**write.row, "complete": False} for write in writes if write.op is Op.TURN])


def _segments(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    start = 0
    latest: dict[tuple[str, str, int], int] = {}
    for position, write in enumerate(writes):
        if latest.get(write.key, 0) >= write.op:
            yield writes[start:position]
            start, latest = position, {}
        latest[write.key] = write.op
    yield writes[start:]


def _standing(connection: Connection, write: Write) -> Outcome:
    """What becomes of a turn that met a complete one in its place, which stays.

    An aborted attempt that comes after the complete one is no loss and no error, nor is the same turn again; another
    complete answer under the same name would be a loss: it was promised to somebody.
    """
    row = write.row
    place = (row["session"], row["index"])
    if write.trunk is None or fetch_value(connection, _STANDING_DIGEST, place) == row["digest"]:
        return False
    name = turn_id(str(row["session"]), int(str(row["index"])))
    return StoreError(f"turn {name} is already stored and complete; another answer is another turn")

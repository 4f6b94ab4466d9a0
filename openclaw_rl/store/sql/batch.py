"""A batch of writes to SQL, inside a transaction that somebody else opened. Blocking; knows no queue and no clock.

The writes of many sessions are interleaved. To put them into few statements they are done per table; to keep their
order where it matters the batch is cut into segments, in which no row is touched twice except in the order of `Op`.
What a record causes is written with it: the judge's task with its evidence or the end of its session, and the end of
samples with an opt-out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Insert,
    Integer,
    Select,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy import delete as delete_from

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store.sql import schema, tasks
from openclaw_rl.store.sql.codec import Row
from openclaw_rl.store.sql.encode import Op, Write
from openclaw_rl.store.sql.upsert import insert_once, upsert
from openclaw_rl.types import Skip, turn_id

WriteResult = bool | StoreError
"""Whether the write changed the database (False: what it says stands there already), or why it was refused."""

_TURN_KEYS = ("session", "index")


class RowStands(Exception):
    """One row of many met another in its place that stays: they have to be written one by one."""


class RunRows(Protocol):
    """A statement for many rows: how many it changed, and what it returned of them if it was asked to."""

    def run(self, connection: Connection, rows: Sequence[Row]) -> tuple[int, list[tuple[Any, ...]]]: ...


class RunOne(Protocol):
    """A statement with its parameters by name: the rows that it returns."""

    def run(self, connection: Connection, values: Row) -> list[tuple[Any, ...]]: ...


class Prepare(Protocol):
    """How a database prepares the statements that every turn needs."""

    dialect: str

    def insert(self, statement: Insert) -> RunRows: ...

    def update(self, table: Table, column: str, keys: Sequence[str], only_where: ColumnElement[bool]) -> RunRows: ...

    def one(self, statement: Select[Any] | Insert | Update | Delete) -> RunOne: ...


class Batch:
    """The statements of one database, prepared once."""

    def __init__(self, prepare: Prepare) -> None:
        dialect, turn = prepare.dialect, schema.turn
        state, said = schema.next_state, schema.feedback
        self._bodies = prepare.insert(insert_once(dialect, schema.message))
        self._evidence = prepare.insert(tasks.insert_evidence(dialect))
        self._statements: Mapping[Op, RunRows] = {
            Op.KEY: prepare.insert(insert(schema.api_key)),
            Op.EPISODE: prepare.insert(insert_once(dialect, schema.episode)),
            Op.SESSION: prepare.insert(upsert(dialect, schema.session, ["id"])),
            Op.TURN: prepare.insert(upsert(dialect, turn, _TURN_KEYS, only_where=turn.c.complete.is_(False))),
            Op.NEXT_STATE: prepare.insert(
                insert_once(dialect, state).returning(state.c.session, state.c.index, state.c.arrived_at)
            ),
            Op.FEEDBACK: prepare.insert(
                insert_once(dialect, said).returning(said.c.session, said.c.index, said.c.given_at)
            ),
            Op.DELIVERED: prepare.update(turn, "delivered", _TURN_KEYS, turn.c.delivered.is_(False)),
            Op.SKIP: prepare.update(turn, "skip", _TURN_KEYS, turn.c.skip.is_(None)),
            Op.CLOSE: prepare.update(schema.session, "closed_at", ["id"], schema.session.c.closed_at.is_(None)),
            Op.REVOKE: prepare.update(schema.api_key, "revoked_at", ["id"], schema.api_key.c.revoked_at.is_(None)),
            Op.TERMS: prepare.update(schema.api_key, "terms", ["id"], schema.api_key.c.id.is_not(None)),
        }
        self._end = prepare.one(tasks.insert_end())
        self._take_back = prepare.update(turn, "complete", (*_TURN_KEYS, "digest"), turn.c.complete.is_(True))
        self._last_seq = prepare.one(select(func.max(state.c.seq)))
        self._count_closed, self._closed_as = (prepare.one(statement) for statement in _numbering_closed())
        this = (turn.c.session == bindparam("session"), turn.c.index == bindparam("index"))
        self._standing_digest = prepare.one(select(turn.c.digest).where(*this))
        self._opt_out_session = [prepare.one(statement) for statement in _opt_out()]
        self._opt_out_turn = [prepare.one(statement) for statement in _opt_out(one_turn=True)]

    def apply(self, connection: Connection, writes: Sequence[Write]) -> list[WriteResult]:
        """Do all writes; one outcome for each. Raises if the database refuses a statement: then none is done."""
        for segment in _segments(writes):
            by_op: defaultdict[Op, list[Write]] = defaultdict(list)
            for write in segment:
                by_op[write.op].append(write)
            for op in sorted(by_op):
                group = by_op[op]
                bodies = [body for write in group for body in write.bodies]
                if bodies:
                    self._bodies.run(connection, bodies)
                rows = [write.row for write in group]
                if op is Op.NEXT_STATE:
                    rows = self._numbered(connection, rows)
                num_changed, new = self._statements[op].run(connection, rows)
                if op in (Op.TURN, Op.SESSION) and num_changed != len(group):
                    if len(writes) > 1:
                        raise RowStands
                    return [self._standing(connection, group[0]) if op is Op.TURN else _foreign(group[0])]
                if new:
                    self._evidence.run(connection, tasks.evidence_rows(new))
                self._number_closed(connection, [row for row in rows if row.get("closed_at") is not None])
                self._opt_out(connection, op, rows)
                if op is Op.SKIP:
                    for row in rows:
                        self._end.run(connection, {"session": row["session"], "index": row["index"]})
                crash_point("store.mid_batch")
        return [True] * len(writes)

    def take_back(self, connection: Connection, writes: Sequence[Write]) -> None:
        """Let those of these that are turns, should they be there although their commit failed, be replaced again."""
        self._take_back.run(connection, [{**write.row, "complete": False} for write in writes if write.op is Op.TURN])

    def _numbered(self, connection: Connection, rows: Sequence[Row]) -> list[Row]:
        """Gives next states their commit numbers. One process writes, so the last number is the highest."""
        ((last,),) = self._last_seq.run(connection, {})
        return [{**row, "seq": position} for position, row in enumerate(rows, start=1 + (last or 0))]

    def _number_closed(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Gives ended sessions their commit numbers; one that had ended before keeps its own."""
        if rows:
            ((last,),) = self._count_closed.run(connection, {"count": len(rows)})
            for number, row in enumerate(rows, start=int(last) - len(rows) + 1):
                self._closed_as.run(connection, {"session": row["id"], "number": number})

    def _opt_out(self, connection: Connection, op: Op, rows: Sequence[Row]) -> None:
        for row in rows:
            if op is Op.SESSION and row["opted_out"]:
                for statement in self._opt_out_session:
                    statement.run(connection, {"session": row["id"]})
            elif op in (Op.TURN, Op.SKIP) and row["skip"] == Skip.OPTED_OUT:
                for statement in self._opt_out_turn:
                    statement.run(connection, {"session": row["session"], "index": row["index"]})

    def _standing(self, connection: Connection, write: Write) -> WriteResult:
        """What becomes of a turn that met a complete one in its place, which stays.

        An aborted attempt that comes after the complete one is no loss and no error, nor is the same turn again;
        another complete answer under the same name would be a loss: it was promised to somebody.
        """
        row = write.row
        place = {"session": row["session"], "index": row["index"]}
        if write.trunk is None or self._standing_digest.run(connection, place) == [(row["digest"],)]:
            return False
        name = turn_id(str(row["session"]), int(str(row["index"])))
        return StoreError(f"turn {name} is already stored and complete; another answer is another turn")


def _opt_out(*, one_turn: bool = False) -> tuple[Delete, Update]:
    """Who opts out late opts out of what was credited before: only what a step has learned from stays."""
    sample, credit = schema.sample.c, schema.credit.c
    gone = delete_from(schema.sample).where(sample.session == bindparam("session"), sample.step.is_(None))
    if one_turn:
        gone = gone.where(or_(sample.index == bindparam("index"), sample.prompt_index == bindparam("index")))
    has_samples = exists().where(sample.session == credit.session, sample.index == credit.index)
    told = update(schema.credit).values(skip=Skip.OPTED_OUT.value)
    return gone, told.where(credit.session == bindparam("session"), credit.skip.is_(None), ~has_samples)


def _numbering_closed() -> tuple[Update, Update]:
    """Counts further, by `count`, and tells the new end; gives a session that has just ended its number."""
    meta, session = schema.meta.c, schema.session.c
    further = cast(cast(meta.value, Integer) + bindparam("count", type_=Integer), Text)
    counted = update(schema.meta).where(meta.name == schema.CLOSED).values(value=further).returning(meta.value)
    ended = update(schema.session).where(session.id == bindparam("session"), session.closed_at.is_not(None))
    return counted, ended.where(session.closed_seq.is_(None)).values(closed_seq=bindparam("number"))


def _foreign(write: Write) -> StoreError:
    return StoreError(f"session {write.row['id']!s} belongs to another user: nothing of this was stored")


def _segments(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    start = 0
    latest: dict[tuple[str, str, int], int] = {}
    for position, write in enumerate(writes):
        if latest.get(write.key, 0) >= write.op:
            yield writes[start:position]
            start, latest = position, {}
        latest[write.key] = write.op
    yield writes[start:]

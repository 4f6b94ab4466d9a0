"""Which turns are settled: what followed them is known, or nothing will, because their session is over.

A reader follows them with a cursor, which it does not look into. Next states and the ends of sessions are counted in
the order in which they were committed, so none is overlooked, whatever the clock does. What the cursor stands on may be
deleted one day: then reading starts again from the beginning, and who reads knows by the ids what it has.
Turns that were opted out are not among them. Blocking, like `queries.py`.
"""

from __future__ import annotations

import base64
from dataclasses import astuple, dataclass, replace
from hashlib import blake2b

import orjson
from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, tuple_

from openclaw_rl.store.sql import schema
from openclaw_rl.types import Skip, turn_id
from openclaw_rl.types.checks import require

_turn, _state, _session = schema.turn.c, schema.next_state.c, schema.session.c
_NUMBERED = select(_state.seq, _state.session, _state.index)


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far somebody has read: up to which next state, and up to which turn of which session that ended.

    The next state may be another user's, so it is named by a digest only.
    """

    number: int = 0
    told: str = ""
    ended_number: int = 0
    ended_index: int = -1

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The inverse of `str`; nothing is the beginning. ValueError for what is no cursor."""
        if not text:
            return cls()
        try:
            number, told, ended_number, ended_index = orjson.loads(base64.urlsafe_b64decode(text))
            if isinstance(ended_number, float):  # a cursor of an older release, which ordered ends by the clock
                ended_number, ended_index = 0, -1
            require(isinstance(told, str), "a digest is text")
            require(0 <= number < 2**63 and 0 <= ended_number < 2**63, "no database counts further")
            require(-1 <= ended_index < 2**63, "no session is longer")
            return cls(int(number), told, int(ended_number), int(ended_index))
        except (ValueError, TypeError, AttributeError):
            raise ValueError("that is no cursor; leave `after` out, or send one as it was received") from None

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(orjson.dumps(astuple(self))).decode()


def settled_turns(connection: Connection, user: str, cursor: Cursor, limit: int) -> tuple[list[str], Cursor]:
    """The ids of a user's settled turns after a cursor, and the cursor behind them."""
    if cursor.number and not _stands(connection, cursor):
        cursor = Cursor()
    query = _NUMBERED.join(schema.turn, and_(_turn.session == _state.session, _turn.index == _state.index))
    query = query.join(schema.session, _session.id == _state.session).where(_state.seq > cursor.number, _readable(user))
    told = connection.execute(query.order_by(_state.seq).limit(limit)).all()
    found = [turn_id(session, index) for _, session, index in told]
    # What is left of other users is passed over now instead of with every question.
    full = len(told) == limit
    last = told[-1] if full else connection.execute(_NUMBERED.order_by(_state.seq.desc()).limit(1)).first()
    if last is not None:
        cursor = replace(cursor, number=last[0], told=_name(last[1], last[2]))
    ended = [] if full else _ended_turns(connection, user, cursor, limit - len(found))
    if ended:
        cursor = replace(cursor, ended_number=ended[-1][2], ended_index=ended[-1][1])
    return found + [turn_id(session, index) for session, index, _ in ended], cursor


def open_turns(connection: Connection, user: str, after: tuple[str, int], limit: int) -> list[str]:
    """The ids of a user's turns that something may still follow, in the order of their names."""
    query = select(_turn.session, _turn.index).join(schema.session, _session.id == _turn.session)
    query = query.where(_session.closed_at.is_(None), _readable(user), ~_is_followed())
    query = query.where(tuple_(_turn.session, _turn.index) > tuple_(*after))
    rows = connection.execute(query.order_by(_turn.session, _turn.index).limit(limit))
    return [turn_id(session, index) for session, index in rows]


def _ended_turns(connection: Connection, user: str, cursor: Cursor, limit: int) -> list[tuple[str, int, int]]:
    """Turns by session and index, and the number of the session's end."""
    place, number = tuple_(_session.closed_seq, _turn.index), cursor.ended_number
    query = select(_turn.session, _turn.index, _session.closed_seq)
    query = query.join(schema.session, _session.id == _turn.session)
    # The first condition says no more than the second, but it alone lets SQLite pass over the sessions of the past.
    query = query.where(_session.closed_seq >= number, place > tuple_(number, cursor.ended_index))
    query = query.where(_readable(user), ~_is_followed()).order_by(_session.closed_seq, _turn.index)
    return [(session, index, number) for session, index, number in connection.execute(query.limit(limit))]


def _stands(connection: Connection, cursor: Cursor) -> bool:
    """Whether the next state that was read last is still there, under its number."""
    row = connection.execute(_NUMBERED.where(_state.seq == cursor.number)).first()
    return row is not None and _name(row[1], row[2]) == cursor.told


def _name(session: str, index: int) -> str:
    return blake2b(turn_id(session, index).encode(), digest_size=8).hexdigest()


def _readable(user: str) -> ColumnElement[bool]:
    wished = and_(_session.opted_out.is_(False), or_(_turn.skip.is_(None), _turn.skip != Skip.OPTED_OUT.value))
    return and_(_session.user == user, wished)


def _is_followed() -> ColumnElement[bool]:
    return exists().where(_state.session == _turn.session, _state.index == _turn.index)

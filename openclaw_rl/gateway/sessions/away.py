"""Open sessions whose turns are in the store alone: which they are, when they end, and what names their turns.

Of each turn a few numbers are kept, so that a request shows whether it goes on from one that is away; what the turn
was is read back then. Kept in a database in memory, which takes a tenth of what dicts of the same would. It does no
I/O and knows neither the store nor what the numbers mean.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from openclaw_rl.types import Session

_TABLES = """
CREATE TABLE session (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL, name TEXT NOT NULL, last_seen_at REAL);
CREATE INDEX session_seen ON session (last_seen_at);
CREATE TABLE mark (mark INTEGER NOT NULL, session INTEGER NOT NULL, PRIMARY KEY (mark, session)) WITHOUT ROWID;
CREATE INDEX mark_session ON mark (session);
"""
_FIND = """
SELECT id FROM mark JOIN session ON session.number = mark.session WHERE mark = ? ORDER BY mark.session DESC LIMIT ?
"""


class Away:
    """The index of what is away. Later ones have higher numbers."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(_TABLES)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, session_id: str) -> bool:
        return self._db.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is not None

    def put(self, session: Session, marks: Iterable[bytes]) -> None:
        """A session that goes; `marks` name its turns."""
        row = (session.id, session.user, session.key or session.id, session.last_seen_at)
        added = self._db.execute("INSERT INTO session (id, user, name, last_seen_at) VALUES (?, ?, ?, ?)", row)
        numbered = ((_number(mark), added.lastrowid) for mark in marks)
        self._db.executemany("INSERT OR IGNORE INTO mark VALUES (?, ?)", numbered)
        self._count += 1

    def remove(self, session_id: str) -> None:
        """It is back, or gone for good; nothing happens if it is not away."""
        row = self._db.execute("DELETE FROM session WHERE id = ? RETURNING number", (session_id,)).fetchone()
        if row is not None:
            self._db.execute("DELETE FROM mark WHERE session = ?", row)
            self._count -= 1

    def find(self, marks: Iterable[bytes], *, limit: int) -> set[str]:
        """The sessions that one of these marks names, of each mark the last that went."""
        rows = (row for mark in marks for row in self._db.execute(_FIND, (_number(mark), limit)))
        return {row[0] for row in rows}

    def names(self, user: str) -> list[tuple[str, str]]:
        """What this user's sessions are called, and their ids."""
        return self._db.execute("SELECT name, id FROM session WHERE user = ?", (user,)).fetchall()

    def seen_before(self, moment: float, *, limit: int) -> list[str]:
        """Those seen last at that moment or before, the longest ago first."""
        query = "SELECT id FROM session WHERE last_seen_at <= ? ORDER BY last_seen_at LIMIT ?"
        return [row[0] for row in self._db.execute(query, (moment, limit))]

    def first_seen(self) -> float | None:
        """When the one that was seen longest ago was seen."""
        moment: float | None = self._db.execute("SELECT min(last_seen_at) FROM session").fetchone()[0]
        return moment


def _number(mark: bytes) -> int:
    return int.from_bytes(mark[:8], "big", signed=True)

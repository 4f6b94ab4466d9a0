"""Conversations in the store, found by what people call them; and the keys that open the door to the gateway."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import ApiKey, Json, Session, SessionSummary, split_turn_id, turn_id
from openclaw_rl.views.health import Backlog, read_backlog
from openclaw_rl.views.lessons import LessonView, read_lessons


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One conversation as a list has it: who talked, and how much."""

    summary: SessionSummary

    def to_json(self) -> dict[str, Json]:
        """`tokens` counts the sampled ones."""
        summary = self.summary
        return {
            **_session_json(summary.session),
            "main_turns": summary.main_turns,
            "side_turns": summary.side_turns,
            "tokens": summary.tokens,
            "versions": list(summary.versions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationView:
    """One conversation turn by turn, or one turn of it; and how learning stands."""

    session: Session
    backlog: Backlog
    lessons: tuple[LessonView, ...]
    is_one_turn: bool

    def to_json(self) -> dict[str, Json]:
        turns = [lesson.to_json() for lesson in self.lessons]
        return {**_session_json(self.session), "learning": self.backlog.to_json(), "turns": turns}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    key: ApiKey

    def to_json(self) -> dict[str, Json]:
        """Without anything that opens a door."""
        key = self.key
        return {
            "id": key.id,
            "user": key.user,
            "label": key.label,
            "created_at": key.created_at,
            "revoked_at": key.revoked_at,
            "terms": key.terms.to_json(),
        }


def list_sessions(rows: ReadStore, *, user: str | None = None, limit: int | None = None) -> list[SessionView]:
    """The one seen last first."""
    return [SessionView(summary=summary) for summary in rows.sessions(user)[:limit]]


def read_conversation(rows: ReadStore, name: str, *, index: int | None = None) -> ConversationView:
    """`name` is a session, the start of one, or a turn; `index` names a turn, too."""
    session, named_index = find_session(rows, name)
    index = named_index if index is None else index
    lessons = tuple(read_lessons(rows, session.id, index))
    backlog = read_backlog(rows)
    return ConversationView(session=session, backlog=backlog, lessons=lessons, is_one_turn=index is not None)


def find_session(rows: ReadStore, name: str, *, user: str | None = None) -> tuple[Session, int | None]:
    """The session that `name` means, and the index if it names a turn (SESSION.INDEX)."""
    return choose_session(name, [summary.session for summary in rows.sessions(user)])


def choose_session(name: str, sessions: Sequence[Session]) -> tuple[Session, int | None]:
    """By its whole name, the client's own name for it, its start, or one of its turns."""
    for exact in sessions:
        if name in (exact.id, exact.key):
            return exact, None
    started = [session for session in sessions if session.id.startswith(name)]
    if len(started) == 1:
        return started[0], None
    with suppress(ValueError):
        of_turn, index = split_turn_id(name)
        of_it = [s for s in sessions if s.id == of_turn] or [s for s in sessions if s.id.startswith(of_turn)]
        if len(of_it) == 1:
            return of_it[0], index
    raise NotFound(_no_session(name, started, sessions))


def find_turn(rows: ReadStore, name: str) -> tuple[Session, int]:
    """The session and the index of a turn."""
    session, index = find_session(rows, name)
    if index is None:
        raise NotFound(f"{name} is a session; name one of its turns, such as {turn_id(session.id, 0)}")
    if rows.turn(session.id, index) is None:
        raise NotFound(f"there is no turn {turn_id(session.id, index)}; `openclaw-rl inspect {session.id}` shows all")
    return session, index


def _no_session(name: str, started: Sequence[Session], sessions: Sequence[Session]) -> str:
    ids = [session.id for session in started or sessions]
    near = difflib.get_close_matches(name, ids, n=3, cutoff=0.4) or ids[:3]
    hint = f"; near it: {', '.join(near)}" if near else ""
    what = f"{len(started)} sessions start with" if started else "there is no session"
    return f"{what} {name!r}{hint}; `openclaw-rl sessions` lists all"


def _session_json(session: Session) -> dict[str, Json]:
    """Times are seconds since 1970."""
    return {
        "id": session.id,
        "user": session.user,
        "client": session.client,
        "key": session.key,
        "opened_at": session.opened_at,
        "last_seen_at": session.last_seen_at,
        "closed_at": session.closed_at,
        "opted_out": session.opted_out,
    }

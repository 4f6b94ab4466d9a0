"""Everything that is kept of a user, one JSON line after the other, for who wants to have or to leave with it."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Json
from openclaw_rl.views.lessons import read_lessons
from openclaw_rl.views.sessions import KeyView, SessionView
from openclaw_rl.views.versions import list_versions

_AT_ONCE = 50


def everything_of(rows: ReadStore, user: str) -> Iterator[bytes]:
    """Keys without what opens doors, every conversation turn by turn with what became of it, and every version."""
    keys = rows.keys()
    for key in keys:
        if key.user == user:
            yield _line("key", KeyView(key=key).to_json())
    after: tuple[float, str] | None = None
    while part := rows.session_part(user, after=after, limit=_AT_ONCE):
        for summary in part:
            session = summary.session
            yield _line("session", SessionView(summary=summary).to_json())
            try:
                lessons = read_lessons(rows, session.id)
            except NotFound:
                continue  # forgotten meanwhile
            for lesson in lessons:
                yield _line("turn", lesson.to_json())
        after = (part[-1].session.last_seen_at, part[-1].session.id)
    for view in list_versions(rows, user=user):
        yield _line("version", view.to_json())


def _line(kind: str, told: dict[str, Json]) -> bytes:
    return orjson.dumps({"kind": kind, **{name: value for name, value in told.items() if name != "kind"}}) + b"\n"

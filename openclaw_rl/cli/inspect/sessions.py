"""`openclaw-rl sessions` and `inspect`: conversations, and what was learned from them, as text or JSON. Only looks."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.inspect.text import backlog_text, lesson_text, room, session_text
from openclaw_rl.cli.screen import ago, make_console, one_line, plain_table, print_json
from openclaw_rl.config import Config, StoreConfig
from openclaw_rl.views.health import read_backlog
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import SessionView, list_sessions, read_conversation
from openclaw_rl.views.tokens import TokenTexts


def show_sessions(store: StoreConfig, *, user: str | None, limit: int | None, as_json: bool) -> None:
    """Print the sessions, the one seen last first."""
    rows = open_rows(store)
    found = list_sessions(rows, user=user, limit=limit)
    if as_json:
        print_json([session.to_json() for session in found])
    elif found:
        console = make_console()
        console.print(sessions_table(found, now=time.time()))
        if note := backlog_text(read_backlog(rows)):
            console.print()
            console.print(note, end="", soft_wrap=True)
    else:
        make_console().print("No sessions yet. Talk to the model: `openclaw-rl chat`.", markup=False)


def show_session(config: Config, name: str, *, index: int | None, as_json: bool) -> None:
    """Print a session's turns, or one of them. `name` is a session, the start of one, or a turn (`SESSION.INDEX`)."""
    found = read_conversation(open_rows(config.store), name, index=index)
    if as_json:
        print_json(found.to_json())
        return
    console, now = make_console(), time.time()
    console.print(session_text(found.session, now=now), soft_wrap=True)
    console.print(backlog_text(found.backlog), soft_wrap=True, end="")
    limit = room(None if found.is_one_turn else console.width)
    has_samples = any(lesson.samples for lesson in found.lessons)
    tokens = TokenTexts.find(config.model) if has_samples else TokenTexts()
    for lesson in found.lessons:
        console.print(lesson_text(lesson, tokens, now=now, limit=limit), soft_wrap=True)


def sessions_table(found: Sequence[SessionView], *, now: float) -> Table:
    """One row each."""
    table = plain_table()
    for title in ("session", "user", "client"):
        table.add_column(title, overflow="fold" if title == "session" else "ellipsis", no_wrap=title != "session")
    for title in ("main", "side", "tokens"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("versions")
    table.add_column("last seen", no_wrap=True)
    for summary in (each.summary for each in found):
        session = summary.session
        state = " closed" if session.closed_at is not None else ""
        table.add_row(
            *(Text(one_line(value, 80)) for value in (session.id, session.user, session.client)),
            *(str(count) for count in (summary.main_turns, summary.side_turns, summary.tokens)),
            Text(", ".join(summary.versions)),
            Text.assemble(ago(now - session.last_seen_at), (state, "dim")),
        )
    return table

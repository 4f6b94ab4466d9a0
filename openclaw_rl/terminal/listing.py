"""`openclaw-rl sessions`: the conversations in the store, as a table or as JSON. Only looks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from openclaw_rl.store import SessionSummary, StoreReader
from openclaw_rl.terminal.backlog import backlog_text, read_backlog
from openclaw_rl.terminal.screen import ago, make_console, one_line, print_json
from openclaw_rl.types import Json, Session


def show_sessions(data_dir: Path, url: str | None, *, user: str | None, limit: int | None, as_json: bool) -> None:
    """Print the sessions, the one seen last first."""
    reader = StoreReader.open(data_dir, url)
    found = reader.sessions(user)[:limit]
    if as_json:
        print_json([summary_json(summary) for summary in found])
    elif found:
        console = make_console()
        console.print(sessions_table(found, now=time.time()))
        if note := backlog_text(read_backlog(reader)):
            console.print()
            console.print(note, end="", soft_wrap=True)
    else:
        make_console().print("No sessions yet. Talk to the model: `openclaw-rl chat`.", markup=False)


def session_json(session: Session) -> dict[str, Json]:
    """The fields of a session; times are seconds since 1970."""
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


def summary_json(summary: SessionSummary) -> dict[str, Json]:
    """A session and what happened in it; `tokens` counts the sampled ones."""
    return {
        **session_json(summary.session),
        "main_turns": summary.main_turns,
        "side_turns": summary.side_turns,
        "tokens": summary.tokens,
        "versions": list(summary.versions),
    }


def sessions_table(summaries: Sequence[SessionSummary], *, now: float) -> Table:
    """One row each."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("session", "user", "client"):
        table.add_column(title, overflow="fold" if title == "session" else "ellipsis", no_wrap=title != "session")
    for title in ("main", "side", "tokens"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("versions")
    table.add_column("last seen", no_wrap=True)
    for summary in summaries:
        session = summary.session
        state = " closed" if session.closed_at is not None else ""
        table.add_row(
            *(Text(one_line(value, 80)) for value in (session.id, session.user, session.client)),
            *(str(count) for count in (summary.main_turns, summary.side_turns, summary.tokens)),
            Text(", ".join(summary.versions)),
            Text.assemble(ago(now - session.last_seen_at), (state, "dim")),
        )
    return table

"""What was said in the chat on other days, for the up key: read from the store each time, and kept nowhere else.

So it is redacted, deleted when it is old and forgotten with its conversation. What was private stays out of it.
"""

from __future__ import annotations

from openclaw_rl.cli.chat.loop import CLIENT_NAME
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import StoreError
from openclaw_rl.types import LOCAL_USER
from openclaw_rl.views.rows import has_store, open_rows

_MAX_SESSIONS = 20


def said_before(store: StoreConfig) -> list[str]:
    """The local user's messages, the newest at the end; nothing where the store is elsewhere or cannot be read."""
    try:
        rows = open_rows(store) if has_store(store) else None
        if rows is None:
            return []
        mine = [one.session for one in rows.sessions(LOCAL_USER) if one.session.client == CLIENT_NAME]
        public = [session for session in mine[:_MAX_SESSIONS] if not session.opted_out]
        turns = [turn for session in reversed(public) for turn in rows.turns(session.id)]
    except StoreError:
        return []
    last = [turn.messages[-1] for turn in turns]
    return [message.content for message in last if message.role == "user" and message.content]

"""A conversation -> the salt under which an engine keeps what it computed of it.

The engine knows tokens, never users; the salt tells it whose they are, and nothing else: a digest under a key that this
process makes and never shows, so that nobody can name the salt of another. One user's conversations on one line share a
salt, and so what they begin with in common. A session that opted out has a salt of its own.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

from openclaw_rl.types import SYSTEM_SALT, Session, line_for, line_of


class CacheSalts:
    """The salts of one process; the engine's cache does not outlive it either."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, session: Session) -> str:
        """The salt of the requests of a session as it is now."""
        return self._of_opted_out(session) if session.opted_out else self._of_line(session)

    def party_of(self, session: Session) -> str:
        """Whose requests take turns with those of others, whichever session they are in: all agents at work in one
        environment are one party."""
        return self._digest("party", line_of(session))

    def of_user(self, user: str) -> str:
        """The salt of what a user asks outside of any session."""
        return self._digest("line", user, line_for(user))

    def touched_by(self, session: Session) -> frozenset[str]:
        """All under which words of a session may lie, those that gate and judge read again included.

        With the session's own words go those of all its user's conversations on the line: they are read again when they
        go on, and that is simpler and surer than to tell apart what two of them share.
        """
        return frozenset((self._of_line(session), self._of_opted_out(session), SYSTEM_SALT))

    def _of_line(self, session: Session) -> str:
        # The user too: several users' agents teach the line of one environment.
        return self._digest("line", session.user, line_of(session))

    def _of_opted_out(self, session: Session) -> str:
        return self._digest("session", session.user, session.id)

    def _digest(self, *names: str) -> str:
        text = "\0".join(names).encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._key, digest_size=16).hexdigest()

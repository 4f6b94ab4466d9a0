"""Lines: which adapter a session teaches. Its newest live version answers that session, too.

    ann             the user ann; `local` is the owner of the machine
    env:terminal    agents at work in the environment `terminal`
    shared:all      everybody who chooses to teach one adapter together; no session can choose it yet

`line_for` is the only place that decides it; `store/sql/episodes.py` says the same in SQL. A user name has no colon, so
it is never the name of another kind of line.
"""

from __future__ import annotations

import re
from typing import Literal

from openclaw_rl.types.checks import require
from openclaw_rl.types.episodes import Episode
from openclaw_rl.types.turns import Session

LineKind = Literal["user", "environment", "shared"]

USER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LINE_NAME = re.compile(rf"((env|shared):)?{USER_NAME.pattern}")
SHARED_LINE = "shared:all"

_KINDS: dict[str, LineKind] = {"": "user", "env": "environment", "shared": "shared"}


def line_of(session: Session) -> str:
    """The line that a session teaches, and that answers it."""
    return line_for(session.user, session.episode)


def line_for(user: str, episode: Episode | None = None) -> str:
    """The line of a user's requests; those of an agent at work belong to its environment's line."""
    if episode is not None:
        return f"env:{episode.environment}"
    require(":" not in user, f"a user name has no colon, got {user!r}: names with one are other kinds of lines")
    return user


def claim_of(line: str) -> str:
    """What a process claims while it trains a line, or releases its versions: one does so at a time."""
    return f"line {line}"


def line_kind(line: str) -> LineKind:
    return _KINDS[split_line(line)[0]]


def split_line(line: str) -> tuple[str, str]:
    """The prefix of a line, empty for a user's, and its name."""
    prefix, _, name = line.rpartition(":")
    require(prefix in _KINDS and bool(name), f"{line[:80]!r} is no line: a line is USER, env:NAME or {SHARED_LINE}")
    return prefix, name

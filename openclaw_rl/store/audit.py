"""Every row and file of a store against its digest: what is damaged, by the names that people use. Only reads.

The structure of the database first, then each turn with all its messages, what followed it and what became of it, then
the weights of every version. What is whole is read past what is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from openclaw_rl.errors import ModelError, StoreError
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.store.sql.reader import SqlReader
from openclaw_rl.types import Version, turn_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """`what` names a turn, a session, a version or the database."""

    what: str
    why: str
    remedy: str


@dataclass(slots=True)
class Audited:
    """How much was compared so far."""

    num_sessions: int = 0
    num_turns: int = 0
    num_versions: int = 0


_RESTORE = "restore a backup (`openclaw-rl restore`)"


def audit(store: SqlReader, audited: Audited) -> Iterator[Damage]:
    """All damage there is; counts in `audited` what was looked at. Blocking, and reads every byte."""
    try:
        for line in store.integrity():
            yield Damage(what="the database", why=line, remedy=_RESTORE)
        names, versions = store.names(), store.versions(every_model=True)
    except StoreError as error:
        yield Damage(what="the database", why=str(error), remedy=_RESTORE)
        return
    for session, indexes in names.items():
        yield from _of_session(store, session, indexes)
        audited.num_sessions += 1
        audited.num_turns += len(indexes)
    for version in versions:
        if version.folder is not None:
            audited.num_versions += 1
            yield from _of_version(version)


def _of_session(store: SqlReader, session: str, indexes: Sequence[int]) -> Iterator[Damage]:
    remedy = f"{_RESTORE}, or take the conversation out (`openclaw-rl forget {session}`)"
    if _why_not(store.turns, session) is not None:
        for index in indexes:
            if (why := _why_not(store.turn, session, index)) is not None:
                yield Damage(what=f"turn {turn_id(session, index)}", why=why, remedy=remedy)
    for what, read in (
        ("what followed its turns", store.next_states),
        ("its feedback", store.feedback),
        ("its judgements", store.judgements),
        ("its credits", store.credits),
    ):
        if (why := _why_not(read, session)) is not None:
            yield Damage(what=f"session {session}, {what}", why=why, remedy=remedy)


def _of_version(version: Version) -> Iterator[Damage]:
    assert version.folder is not None
    remedy = f"{_RESTORE}; without its files it is rejected, and the version before it answers"
    try:
        found = folder_sha256(version.folder)
    except ModelError as error:
        yield Damage(what=f"version {version.label}", why=str(error), remedy=remedy)
    else:
        if version.sha256 and found != version.sha256:
            why = f"the weights in {version.folder} are not those that were made: their sha256 is {found}"
            yield Damage(what=f"version {version.label}", why=why, remedy=remedy)


def _why_not(read: Callable[..., object], *what: str | int) -> str | None:
    try:
        read(*what)
    except StoreError as error:
        return str(error)
    return None

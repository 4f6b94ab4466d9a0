"""Turns as the index of sessions remembers them, and how they are found again by something they share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Literal, TypeVar

from openclaw_rl.gateway.sessions.history import Asked, Fingerprint
from openclaw_rl.types import TurnKind, turn_id

_MAX_TWINS = 64

K = TypeVar("K")


@dataclass(slots=True, kw_only=True)
class KnownTurn:
    """A turn as the index remembers it; its tokens and texts are in the store.

    `asked` is kept while the turn has no answer, and `furniture` names the answers in its history that are nobody's:
    neither survives a restart, after which a reworded retry is a sibling and the client's own answers end a reaction.
    """

    session: str
    index: int
    parent: int | None
    kind: TurnKind
    digest: str
    state: Literal["running", "finished", "aborted"]
    context: bytes = b""
    asked: Asked | None = None
    furniture: frozenset[bytes] = frozenset()
    fingerprint: Fingerprint | None = None
    delivered: bool = False
    has_next_state: bool = False

    @property
    def id(self) -> str:
        return turn_id(self.session, self.index)


class TurnIndex(Generic[K]):
    """Turns by something they share, in the order of their arrival: of each session, and of all of them (None)."""

    def __init__(self) -> None:
        self._turns: defaultdict[tuple[K, str | None], dict[str, KnownTurn]] = defaultdict(dict)

    def add(self, key: K, turn: KnownTurn) -> None:
        for scope in (turn.session, None):
            self._turns[key, scope][turn.id] = turn

    def newest(self, key: K, scope: str | None) -> list[KnownTurn]:
        """The turns under `key` in the session `scope` (None: in any), newest first, as many as can matter."""
        turns = self._turns.get((key, scope))
        return list(islice(reversed(turns.values()), _MAX_TWINS)) if turns else []

    def discard(self, key: K, turn: KnownTurn) -> None:
        for scope in (turn.session, None):
            turns = self._turns.get((key, scope))
            if turns is not None:
                turns.pop(turn.id, None)
                if not turns:
                    del self._turns[key, scope]

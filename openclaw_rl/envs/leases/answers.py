"""A key -> one run of a call, and the same answer whenever it is asked for again. It does not know what is called.

A call is a task of its own: whoever asks for it may leave, and whoever asks again finds it still running, or done. The
answers of the last calls are kept. Of older ones only the key is known, so that they are refused and never run twice.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from openclaw_rl.errors import EnvError

_Answer = TypeVar("_Answer")

_MAX_KEPT = 8
"""KeyedAnswers of commands have up to a quarter of a megabyte each. A client asks again for its last call."""

_MAX_KEYS = 4096
"""About a megabyte of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(Generic[_Answer]):
    digest: bytes
    task: Task[_Answer]


class KeyedAnswers(Generic[_Answer]):
    """The calls of one kind to one room."""

    def __init__(self) -> None:
        self._kept: dict[str, _Asked[_Answer]] = {}
        self._forgotten: set[str] = set()

    @property
    def num_keys(self) -> int:
        """Calls that were begun so far."""
        return len(self._kept) + len(self._forgotten)

    def find(self, key: str, digest: bytes) -> Task[_Answer] | None:
        """The call that this key was used for; None for a new key. `digest` tells whether it is the same call."""
        if key in self._forgotten:
            raise EnvError(f"the call with key {key!r} has run, but its answer is not kept any more")
        known = self._kept.get(key)
        if known is None:
            return None
        if known.digest != digest:
            raise EnvError(f"key {key!r} was used for another call; every call needs a key of its own")
        return known.task

    def start(self, key: str, digest: bytes, begin: Callable[[], Task[_Answer]]) -> Task[_Answer]:
        """Begins the call of a new key."""
        if self.num_keys >= _MAX_KEYS:
            raise EnvError(f"a lease serves at most {_MAX_KEYS} calls of a kind; take another one")
        task = begin()
        self._kept[key] = _Asked(digest=digest, task=task)
        while len(self._kept) > _MAX_KEPT and next(iter(self._kept.values())).task.done():
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._forgotten.add(oldest)
        return task

"""A least-recently-used cache that is bounded by bytes instead of entries.

Agents resend the same 40 KB system prompt with every request; encoding it costs 15 ms, finding it 10 µs. Does not know
what it keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Values with a size each, given by whoever puts them. Safe to use from threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """The value of `key`, which becomes the most recently used one."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, num_bytes: int) -> None:
        """Keep `value`, at the cost of those used longest ago. One that exceeds the whole cache is not kept."""
        if num_bytes > self._max_bytes:
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._num_bytes += num_bytes - (replaced[1] if replaced else 0)
            self._entries[key] = (value, num_bytes)
            while self._num_bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._num_bytes -= dropped

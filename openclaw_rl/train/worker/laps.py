"""Where the time of an order goes: seconds by name. Whatever reads them, nothing else depends on them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Laps:
    """Adds up what each name took. Of laps inside another one, the outer one counts what is left."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._inside = 0.0
        self._began_at = clock()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        began_at, before, self._inside = self._clock(), self._inside, 0.0
        try:
            yield
        finally:
            took = self._clock() - began_at
            self._seconds[name] += took - self._inside
            self._inside = before + took

    def seconds(self, *names: str) -> float:
        """What these took together."""
        return sum(self._seconds.get(name, 0.0) for name in names)

    def metrics(self) -> dict[str, float]:
        """As metrics of a step; the last of them is all that went by."""
        return {f"time/{name}": taken for name, taken in self._seconds.items()} | {
            "time/order": self._clock() - self._began_at
        }

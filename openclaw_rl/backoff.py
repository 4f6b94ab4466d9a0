"""Pauses that double: how long to wait before something that failed is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import inf

_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`first_s`, twice that, and so on, up to `longest_s`. Stateless: the caller counts its failures, or iterates.

    >>> Backoff(first_s=1.0, longest_s=5.0).pause_s(num_failures=3)
    4.0
    """

    first_s: float
    longest_s: float = inf

    def pause_s(self, num_failures: int) -> float:
        """How long to wait after so many failures in a row, at least one."""
        doublings = min(max(0, num_failures - 1), _MOST_DOUBLINGS)
        return min(self.first_s * 2.0**doublings, self.longest_s)

    def __iter__(self) -> Iterator[float]:
        """The pauses, one after the other, without end."""
        return map(self.pause_s, count(1))

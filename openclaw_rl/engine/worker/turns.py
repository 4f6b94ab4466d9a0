"""Who waits, and for how much of the engine each may count -> in which order requests begin. Start-time fair queueing.

Each request gets a stamp, and the lowest stamp begins next. A party's next request is stamped `1 / weight` later than
its one before it, but never earlier than the last request that began: whoever has a long line of requests stands behind
himself, and whoever was silent saves nothing up.

The bound: a request of a party that has no other one waiting begins after at most one request of each other party that
was there before it, however many those have. Of a party that has k waiting, each other party j begins at most
`k * weight_j / weight + 1` before the next one is done with. Nobody waits for the length of another's line.

Counts requests, not tokens: an answer that runs is not taken away again, and how long it gets nobody knows before.
"""

from __future__ import annotations

_MANY = 1024


class Turns:
    """Stamps for the requests of one engine, of one priority."""

    def __init__(self) -> None:
        self._now = 0.0
        """The stamp of the last request that began."""
        self._next: dict[str, float] = {}
        """By party: the earliest stamp of its next request. Those in the past are forgotten now and then."""

    def stamp(self, party: str, weight: float = 1.0) -> float:
        """For a request that arrives now. One without a party stands alone."""
        stamp = max(self._now, self._next.get(party, 0.0))
        if party:
            self._next[party] = stamp + 1.0 / weight
        if len(self._next) > _MANY:
            self._next = {name: at for name, at in self._next.items() if at > self._now}
        return stamp

    def begun(self, stamp: float) -> None:
        """A request with this stamp is computed from now on."""
        self._now = max(self._now, stamp)

"""Spans from a start to an end, such as appointments of a day."""

from __future__ import annotations

Span = tuple[int, int]


def overlap(one: Span, other: Span) -> bool:
    """Whether two spans share more than an end."""
    return one[0] < other[1] and other[0] < one[1]


def merged(spans: list[Span]) -> list[Span]:
    """The same time in as few spans as can be, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            before = joined.pop()
            joined.append((before[0], max(before[1], end)))
        else:
            joined.append((start, end))
    return joined


def gaps(spans: list[Span], within: Span) -> list[Span]:
    """The free time between spans, from the start to the end of `within`."""
    free: list[Span] = []
    at = within[0]
    for start, end in merged(spans):
        if start > at:
            free.append((at, min(start, within[1])))
        at = max(at, end)
        if at >= within[1]:
            break
    if at < within[1]:
        free.append((at, within[1]))
    return free


def first_fit(spans: list[Span], within: Span, length: int) -> Span | None:
    """The first free time that is long enough."""
    for start, end in gaps(spans, within):
        if end - start >= length:
            return (start, start + length)
    return None


def total(spans: list[Span]) -> int:
    """How much time the spans take; what several of them cover counts once."""
    return sum(end - start for start, end in merged(spans))

"""A conversation -> members in the order in which they are asked, so that it comes back to the one that has read it.

Rendezvous hashing: every member draws a number for the conversation, and the highest goes first. A member that joins or
leaves moves its own share and nobody else's. `bound` keeps one member from getting far more than the others
(https://arxiv.org/abs/1608.01350): what is above it goes to the next in the conversation's own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil

_MOST_OVER_MEAN = 1.25
_ALWAYS = 4
"""Requests that a member may have however few there are: a handful does not queue, and would lose its cache."""


def ranked(conversation: str, names: Sequence[str]) -> list[int]:
    """The places of `names`, the conversation's own first."""
    key = blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    drawn = [blake2b(name.encode(), key=key, digest_size=8).digest() for name in names]
    return sorted(range(len(names)), key=drawn.__getitem__, reverse=True)


def bound(num_running: Sequence[int]) -> int:
    """How many requests one member may have, of members that have so many now."""
    return ceil(_MOST_OVER_MEAN * (sum(num_running) + 1) / len(num_running)) + _ALWAYS

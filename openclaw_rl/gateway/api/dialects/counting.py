"""How many values a JSON text holds, counted before any of them becomes an object: a million empty lists are a small
body and half a gigabyte of memory. It does not know whether the text is valid.
"""

from __future__ import annotations

import re

_MARKS = (b",", b"[", b"{")
"""Of which a JSON text with n values has about n: each value but the first stands behind one."""
_MIN_VALUE_BYTES = 2
"""With the mark before it, a value takes no less."""
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SLAB_BYTES = 1 << 18
"""Looked at in one go: the interpreter's lock is held for a millisecond at most."""


def has_more_values(raw: bytes, limit: int) -> bool:
    """Whether a body has more than about `limit` values. Signs within strings are no values."""
    if len(raw) <= _MIN_VALUE_BYTES * limit:
        return False
    rough = sum(raw.count(mark, at, at + _SLAB_BYTES) for mark in _MARKS for at in range(0, len(raw), _SLAB_BYTES))
    return rough > limit and _is_over(raw, limit)


def _is_over(raw: bytes, limit: int) -> bool:
    num_marks = num_strings = at = 0
    while at < len(raw):
        quote = raw.find(b'"', at, at + _SLAB_BYTES)
        end = quote if quote >= 0 else min(at + _SLAB_BYTES, len(raw))
        num_marks += sum(raw.count(mark, at, end) for mark in _MARKS)
        num_strings += quote >= 0
        # A member of an object is two strings. More of them between marks are no JSON, and not walked through.
        if num_marks > limit or num_strings > 2 * limit + 2:
            return True
        at = _behind_string(raw, quote + 1) if quote >= 0 else end
    return False


def _behind_string(raw: bytes, at: int) -> int:
    """Where a string that is open at `at` is over."""
    while True:
        found = _STRING.match(raw, at, at + _SLAB_BYTES)
        end = at if found is None else found.end()
        if raw[end : end + 1] == b'"':
            return end + 1
        if end == at:
            return len(raw)
        at = end

"""Two messages -> whether the second asks again for what the first one asked for."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache

from openclaw_rl.judge.rules.language import WIDE

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+(?:[.,:/]\d+)*|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ENDINGS = re.compile(r"(?:ations?|ing|edly|ed|ies|es|s|ly|er|e)$")
_STOP = frozenset(
    re.split(
        r"\s+",
        """a an the i me my we you your it its this that these those is are was were be been do does did can could would
        will shall should may might must to of in on at for from with by as and or but so if then than please just how
        what which who when where why there here some any have has had get got not no yes ok also again mean meant asked
        ask want wanted need like tell give show help let us im one before after other every too very still now about
        into out up down really actually hey hi""",
    )
)
MAX_CHARS = 1000
"""A longer message is pasted text, not the request in other words."""
MAX_RATIO = 8
"""Texts that differ more in length cannot share most of their words."""


def asks_again(first: str, second: str) -> bool:
    """Whether nearly all of the content of `first` is in `second` again and little else; a new number is a new case."""
    if " ".join(first.lower().split()) == " ".join(second.lower().split()):
        return bool(first.strip())
    longest = max(len(first), len(second))
    if longest > MAX_CHARS or longest > MAX_RATIO * min(len(first), len(second)):
        return False
    before, after = content(first), content(second)
    if len(before) < 2 or len(after) < 2:
        return False
    if {w for w in before if w[0].isdigit()} != {w for w in after if w[0].isdigit()}:
        return False
    common = _common(before, after)
    gone, new = len(before) - common, len(after) - common
    overlap = common / (len(before) + len(after) - common)
    if gone == 0:  # all of it again: more exact if a little was added, a follow-up if much was
        return overlap >= 0.6
    if gone == 1 and new == 1:  # one thing exchanged for another is the next question of a series
        return overlap >= 0.8
    return overlap >= 0.6


@lru_cache(maxsize=64)
def content(text: str) -> frozenset[str]:
    """The stems of the content words; of text without spaces its pairs of characters."""
    stems: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if WIDE.match(word):
            stems.update(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        elif word not in _STOP:
            stem = _ENDINGS.sub("", word)
            stems.add(stem if len(stem) >= 3 else word)
    return frozenset(stems)


def _common(before: frozenset[str], after: frozenset[str]) -> int:
    """How many words are in both, a typing error forgiven."""
    both = before & after
    left, right = before - both, after - both
    if len(left) > 8 or len(right) > 8:
        return len(both)
    close = sum(any(_close(a, b) for b in right) for a in left)
    return len(both) + close


def _close(a: str, b: str) -> bool:
    if a[0] != b[0] or min(len(a), len(b)) < 4 or abs(len(a) - len(b)) > 3:
        return False
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= 0.8


_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_RUN = 4


def is_noise(low: str) -> bool:
    """Whether a text is one word of neighbouring keys ("asdfgh") or of one or two letters over and over."""
    word = low.strip()
    if len(word) < _RUN or not word.isascii() or not word.isalpha():
        return False
    rows = [word[i : i + _RUN] for i in range(len(word) - _RUN + 1)]
    typed = sum(any(run in keys or run[::-1] in keys for keys in _KEYS) for run in rows)
    return typed * 2 >= len(rows) or len(set(word)) <= len(word) // 3

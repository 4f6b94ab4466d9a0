"""A text -> its n-grams as numbers: runs of 2 to 5 characters, and of 1 to 3 words, hashed. All languages have them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import numpy as np

from openclaw_rl.judge.heads.regression import Ints

NUM_FEATURES = 1 << 15
MAX_CHARS = 400
_WORD = re.compile(r"\w+|[^\w\s]")


def features(text: str) -> Ints:
    """Sorted, each once."""
    return np.unique(np.fromiter((zlib.crc32(gram.encode()) % NUM_FEATURES for gram in _grams(text)), dtype=np.int64))


def _grams(text: str) -> Iterator[str]:
    plain = f" {' '.join(text[:MAX_CHARS].lower().split())} "
    for size in (2, 3, 4, 5):
        yield from (plain[at : at + size] for at in range(len(plain) - size + 1))
    words = _WORD.findall(plain)
    for size in (1, 2, 3):
        yield from ("w:" + " ".join(words[at : at + size]) for at in range(len(words) - size + 1))
    yield f"first:{words[0] if words else ''}"
    yield f"last:{words[-1] if words else ''}"
    yield f"length:{min(8, len(words) // 4)}"

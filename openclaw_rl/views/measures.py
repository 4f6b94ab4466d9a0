"""What a person reads for each measure of a check's report, and the limits in it as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

MEASURE_WORDS: Mapping[str, str] = {
    "kl": "drift, nats a token",
    "kl_turn": "drift on the worst replayed turn",
    "kl_prompt": "drift on the worst prompt",
    "length": "length, times",
    "tokens": "tokens an answer",
    "distinct": "different token pairs",
    "repetition": "repeated 3-grams",
    "entropy": "entropy, nats",
    "empty": "empty answers",
    "broken_calls": "broken tool calls",
    "refusals": "refusals",
    "questions": "questions back",
    "flattery": "flattery",
    "on_topic": "on topic",
    "towards_user": "towards the user, nats",
    "capability": "questions answered right",
    "held_out": "held-out tasks done",
}

_LIMIT = re.compile(r"(?P<sign>[≤≥<>]=?)\s*(?P<number>[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def limits_of(limit: str) -> tuple[float | None, float | None]:
    """The least and the most that a limit in words allows.

    >>> limits_of("≤ 1.6"), limits_of("≥ 0.25"), limits_of("")
    ((None, 1.6), (0.25, None), (None, None))
    """
    low = high = None
    for found in _LIMIT.finditer(limit):
        if found["sign"][0] in "≤<":
            high = float(found["number"])
        else:
            low = float(found["number"])
    return low, high

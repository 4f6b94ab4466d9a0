"""A text to the same text without its secrets: each is replaced by `[redacted KIND]`.

    shapes.py    keys, tokens and addresses that look like nothing else
    named.py     passwords and random strings that the words beside them give away
    numbers.py   cards, accounts, phones and people's numbers: digits that check out

It knows no names of people or places, and nothing of who wrote the text. Deterministic and idempotent. Linear in the
length of the text: every pattern reaches a bounded way from where it starts or never gives a character back, and a
long run of the same characters is a start at its first one only (tests/unit/redaction holds each pattern to that).

>>> redact("log in as ann@example.com with password = hunter2")
'log in as [redacted email] with password = [redacted password]'
"""

from __future__ import annotations

import re

from openclaw_rl.redaction import named, numbers, shapes
from openclaw_rl.redaction.rule import Found, Rule, Seen

__all__ = ["Found", "find_secrets", "is_secret_name", "redact"]

is_secret_name = named.is_secret_name

RULES: tuple[Rule, ...] = (*shapes.RULES, *named.RULES, *numbers.RULES)
"""In order: what an earlier one found is gone for the later ones."""

_MARKER = re.compile(r"\[redacted [a-z-]{1,32}\]")
_MAX_ROUNDS = 8
"""A find can uncover another that it kept hidden, at its side. One that hides more than this in a row is a puzzle."""


def redact(text: str) -> str:
    """The text with every secret that is found replaced by its kind."""
    found = find_secrets(text)
    if not found:
        return text
    parts: list[str] = []
    end = 0
    for one in found:
        parts += (text[end : one.start], f"[redacted {one.kind}]")
        end = one.end
    return "".join((*parts, text[end:]))


def find_secrets(text: str) -> list[Found]:
    """Every secret in a text, in order; no two overlap."""
    found: list[Found] = []
    seen = Seen.of(text)
    if "[redacted " in text:
        seen = seen.without(Found("marker", *match.span()) for match in _MARKER.finditer(text))
    for _ in range(_MAX_ROUNDS):
        num_before = len(found)
        for rule in RULES:
            new = rule.find(seen)
            if new:
                found += new
                seen = seen.without(new)
        if len(found) == num_before:
            break
    return sorted(found, key=lambda one: one.start)

"""Whether a value looks like one that a machine drew, or like something that a person wrote down as an example."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

_LOOKED_AT = 80
"""Characters of a value that decide: the rest of a long one is not different."""
_PARTS = re.compile(r"[/._:+=~-]++", re.ASCII)
_STANDS_FOR_ANOTHER = re.compile(
    r"\$[{(]|\$[A-Za-z_]++\Z|<|[{\[]|%[(sd]|%[A-Z_]++%|\*++\Z|process\.env|os\.environ|getenv|env\.|secrets\.|vault:",
    re.ASCII,
)
_EXAMPLE_WORDS = (
    *("your", "example", "placeholder", "changeme", "change-me", "change_me", "redacted", "dummy", "insert", "enter"),
    *("todo", "xxx", "***", "..."),
)
_SECRET_WORDS = ("pass", "pwd", "secret", "token", "key", "auth", "cred")
_CONSTANTS = frozenset(
    (
        *("none", "null", "nil", "undefined", "true", "false", "yes", "no", "any", "string", "str", "text", "bytes"),
        *("bool", "boolean", "number", "integer", "object", "value", "field", "input", "prompt", "form", "type"),
        *("required", "optional", "default", "hidden", "masked", "empty", "missing", "invalid", "incorrect", "wrong"),
        *("expired", "unknown", "protected", "encrypted", "generated", "must", "should", "cannot", "has", "have"),
        *("user", "admin", "root", "test", "tests", "local", "self", "this", "basic", "bearer"),
    )
)


def entropy(value: str) -> float:
    """Bits per character, by how often each occurs in it."""
    counts = Counter(value).values()
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts)


def is_random(value: str) -> bool:
    """Whether no person would have made this up: letters and digits mixed, or letters of changing case."""
    value = value[:_LOOKED_AT]
    if len(value) < 8 or entropy(value) < 2.5:
        return False
    for part in _PARTS.split(value):
        letters = sum(character.isalpha() for character in part)
        if len(part) >= 8 and letters and len(part) - letters >= 1 and not _is_numbered_word(part):
            return True
        if len(part) >= 16 and sum(a.islower() != b.islower() for a, b in pairwise(part)) >= len(part) // 4:
            return True
    # UUIDs and keys cut into short parts: many parts, most of them with digits.
    parts = [part for part in _PARTS.split(value) if part]
    mixed = [part for part in parts if not part.isalpha() and not part.isdigit()]
    return len(value) >= 16 and len(mixed) >= 2 and 2 * len(mixed) >= len(parts)


def is_placeholder(value: str) -> bool:
    """Whether a value stands for another one, or says what should stand here."""
    value = value[:_LOOKED_AT]
    if _STANDS_FOR_ANOTHER.match(value) or len(set(value)) <= 1:
        return True
    lowered = value.lower()
    if lowered in _CONSTANTS:
        return True
    if any(word in lowered for word in _EXAMPLE_WORDS):
        return not is_random(value)
    # `password = new_password`: the name of another variable. A real one that holds such a word also has digits.
    return any(word in lowered for word in _SECRET_WORDS) and not any(map(str.isdigit, value))


def _is_numbered_word(part: str) -> bool:
    """`checkpoint12`, `v20240101`: a word and then a number."""
    head = part.rstrip("0123456789")
    return head.isalpha() and (head.islower() or head.isupper() or head.istitle()) and len(part) - len(head) < 9

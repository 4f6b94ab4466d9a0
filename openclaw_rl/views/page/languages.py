"""The language of a sentence, as far as its letters tell: enough to sort a list by. Judges read it their own way."""

from __future__ import annotations

import re

from openclaw_rl.judge.rules import is_foreign

_SCRIPTS = (
    ("ja", re.compile(r"[\u3041-\u30fa\u31f0-\u31ff]")),
    ("ko", re.compile(r"[\u1100-\u11ff\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u3400-\u9fff]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
)
"""Japanese first: it has Chinese characters too."""
_LETTER = re.compile(r"[^\W\d_]")
_SHOWN_CHARS = 2000


def language_of(text: str) -> str:
    """A code of two letters; `other` for what is none of those told apart, and nothing where there are no words.

    >>> language_of("shorter, please"), language_of("简短一点"), language_of("👎")
    ('en', 'zh', '')
    """
    text = text[:_SHOWN_CHARS]
    for code, letters in _SCRIPTS:
        if letters.search(text):
            return code
    if not _LETTER.search(text):
        return ""
    return "other" if is_foreign(text) else "en"

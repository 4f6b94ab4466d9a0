"""A reply -> the number it settles on and whether that is right; a grading comment -> its verdict."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache

from openclaw_rl.evaluation.detectors.text import any_of, visible, words

_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:,\d{3})+(?:\.\d+)?(?!\d)|(?<![\w.])[-−]?\d+(?:\.\d+)?(?:/\d+)?(?!\d)")
_SETTLES = re.compile(
    r"(?:\\boxed\{|####|\banswers?(?: \w+){0,3}? (?:is|are|would be|:)|\banswer:"
    r"|\b(?:total|result|sum|difference|product)(?: \w+){0,4}? (?:is|are|of|equals)|\bequals|=)"
    rf"\D{{0,20}}?({_NUMBER.pattern})(?!\s*[-+*/x×÷−]\s*\d)",  # in "the answer is 3 + 4 = 7" it is the 7
    re.IGNORECASE,
)
_LIST_NUMBER = re.compile(r"^[ \t]*\(?\d{1,2}[.)][ \t]+", re.MULTILINE)
_UP_TO_NINETEEN = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_ONES = {name: value for value, name in enumerate(_UP_TO_NINETEEN)}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}


def final_number(text: str) -> Fraction | None:
    """The number that a reply settles on: the last one it calls its answer or puts behind "=", else its last one.

    Numbers in words count where there are none in figures.
    """
    seen = _LIST_NUMBER.sub("", visible(text))
    given = [m[1] for m in _SETTLES.finditer(seen)] or _NUMBER.findall(seen)
    if given:
        return _value(given[-1])
    spelt = [n for n in map(_spelt, words(seen)) if n is not None]
    return Fraction(spelt[-1]) if spelt else None


def is_correct(text: str, answer: str | float) -> bool:
    """Whether a reply settles on `answer`; an answer that is no number must stand in it as a whole."""
    wanted = _value(str(answer).strip().lstrip("$€£").rstrip("%").strip())
    if wanted is None:
        return re.search(rf"(?<!\w){re.escape(str(answer).strip())}(?!\w)", visible(text), re.IGNORECASE) is not None
    given = final_number(text)
    return given is not None and math.isclose(given, wanted, rel_tol=1e-6, abs_tol=1e-9)


def _value(number: str) -> Fraction | None:
    try:
        return Fraction(number.replace(",", "").replace("−", "-"))
    except (ValueError, ZeroDivisionError):
        return None


def _spelt(word: str) -> int | None:
    tens, _, ones = word.partition("-")
    return _TENS[tens] + _ONES.get(ones, 0) if tens in _TENS else _ONES.get(word)


@cache
def _grading(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{any_of(name)}(?!\w)", re.IGNORECASE)


def verdict(text: str) -> bool | None:
    """What a grading comment says of the work: right, wrong, or None where it does not say.

    A mistake that it names makes it wrong, whatever else is praised; "the correct answer is 12" praises nothing.
    """
    bare = _grading("faultless").sub(" correct ", visible(text).replace("’", "'"))
    if _grading("found_wrong").search(bare):
        return False
    return True if _grading("found_right").search(_grading("mentioned").sub(" ", bare)) else None

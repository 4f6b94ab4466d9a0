"""A reply -> the number it settles on and whether that is right."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from openclaw_rl.evaluation.detectors.text import spaced, visible

_THIN = r"[ \u00a0\u2009\u202f]"
_NUMBER = re.compile(
    rf"(?<![\w.])[-−]?(?:(?:\d+(?:,\d{{3}})+|[1-9]\d{{0,2}}(?:{_THIN}\d{{3}})+)(?:\.\d+)?"
    r"|\d+(?:\.\d+)?(?:/\d+)?|\.\d+)(?!\d)"
)
_RESULT = r"(?:total|result|sum|difference|product)"
_OF = r"of(?! \S+ and \S*\d)"  # in "48, the product of 4 and 12" neither is it
_SAYS = r"(?:[^.!?\n]|\.\d){0,200}\b(?:is|are|was|were|equals|makes?|gives?|comes?)\b"
_SETTLES = re.compile(
    r"(?:\\boxed\{|####|\banswers?(?: \w+){0,3}? (?:is|are|would be|:)|\banswer:"
    rf"|\b{_RESULT}(?: \w+){{0,4}}? (?:is|are|equals)|\bequals|="
    # "a total of 48" is one; in "the sum of 12 and 30 is 42" the verb has it
    rf"|\ba (?:\w+ )?{_RESULT}(?: \w+)? {_OF}"
    rf"|\b{_RESULT}(?: \w+){{0,4}}? {_OF}(?!{_SAYS}))"
    rf"\D{{0,20}}?({_NUMBER.pattern})"
    r"(?!\s*(?:[-+*/x×÷−]|\b(?:plus|minus|times)\b)\s*\d)",  # in "the answer is 3 + 4 = 7" it is the 7
    re.IGNORECASE,
)
_MINUS = re.compile(r"(?<![\d)%] )\b(?:minus|negative) [$€£]?(?=\.?\d)", re.IGNORECASE)
_LIST_NUMBER = re.compile(r"^[ \t]*\(?\d{1,2}[.)][ \t]+", re.MULTILINE)
_UP_TO_NINETEEN = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_ONES = {name: value for value, name in enumerate(_UP_TO_NINETEEN)}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}


def _either(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(names)})"


_BELOW_100 = rf"(?:{_either(_TENS)}(?:[ -]{_either(_UP_TO_NINETEEN[1:10])})?|{_either(_ONES)})"
_BELOW_1000 = rf"(?:{_either(_ONES)} hundred(?: (?:and )?{_BELOW_100})?|{_BELOW_100})"
_SPELT_NUMBER = rf"(?:{_BELOW_1000} thousand(?:,? (?:and )?{_BELOW_1000})?|{_BELOW_1000})"
_SPELT = re.compile(
    rf"(?<![^\W_])(?<![^\W_][’'.,:/-])(?:({_SPELT_NUMBER} )?(minus|negative) )?({_SPELT_NUMBER})"
    r"(?![^\W_]|[’'.,:/-][^\W_])",
    re.IGNORECASE,
)


def final_number(text: str) -> Fraction | None:
    """The number that a reply settles on: the last one it calls its answer or puts behind "=", else its last one.

    Numbers in words count where there are none in figures.
    """
    seen = _MINUS.sub("-", _LIST_NUMBER.sub("", spaced(text)))
    given = [m[1] for m in _SETTLES.finditer(seen)] or _NUMBER.findall(seen)
    if given:
        return _value(given[-1])
    spelt = list(_SPELT.finditer(seen))
    return _spelt_value(spelt[-1]) if spelt else None


def is_correct(text: str, answer: str | float) -> bool:
    """Whether a reply settles on `answer`; an answer that is no number must stand in it as a whole."""
    wanted = _value(str(answer).strip().lstrip("$€£").rstrip("%").strip())
    if wanted is None:
        return re.search(rf"(?<!\w){re.escape(str(answer).strip())}(?!\w)", visible(text), re.IGNORECASE) is not None
    given = final_number(text)
    return given is not None and abs(given - wanted) <= max(max(abs(given), abs(wanted)) / 10**6, Fraction(1, 10**9))


def _value(number: str) -> Fraction | None:
    joined = re.sub(rf"(?<=\d){_THIN}(?=\d{{3}}(?!\d))|,", "", number)
    try:
        return Fraction(joined.replace("−", "-"))
    except (ValueError, ZeroDivisionError):
        return None


def _spelt_value(found: re.Match[str]) -> Fraction:
    """In "ten minus seven" the seven is none below zero."""
    taken_from, minus, number = found.groups()
    thousands = part = 0
    for word in re.findall(r"[a-z]+", number.lower()):
        if word == "thousand":
            thousands, part = part * 1000, 0
        elif word == "hundred":
            part *= 100
        else:
            part += _TENS.get(word) or _ONES.get(word, 0)
    return Fraction(thousands + part) * (-1 if minus and not taken_from else 1)

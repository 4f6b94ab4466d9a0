"""A reply -> how it is written: markup, friendly words, steps shown. Does not know what was asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from openclaw_rl.evaluation.detectors.text import BULLET, CJK, DASH, NUMBERED, any_of, prose, sentences, visible, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """How many of each a text has. Code is no markup: it is what was asked for, or it is not."""

    bold: int = 0
    list_items: int = 0
    headings: int = 0
    tables: int = 0

    @property
    def total(self) -> int:
        return self.bold + self.list_items + self.headings + self.tables


_CODE = re.compile(r"`[^`\n]+`")
_ATTRIBUTES = r"(?:\s+[\w-]+=[^<>]*)?\s*>"
_BOLD = re.compile(
    rf"(?<![*)])(?<![^\W{CJK}])\*\*\*?(?=[^\s*])[^\n]*?(?<=[^\s*])\*\*"  # 2**3**4 and x ** 2 ** y are powers
    rf"|(?<![\w.])__(?=[^\s_])(?!(?:{any_of('dunders')}|[^\W_]+_\w*)__)[^\n]*?(?<=[^\s_])__(?!\w)"  # __init__ is a name
    rf"|(?i:<(?:b|strong){_ATTRIBUTES})"
    r"|[\U0001d400-\U0001d7cb]+(?:\s+[\U0001d400-\U0001d7cb]+)*"  # letters that only look bold
)
_LETTERED = re.compile(r"^[ \t]*\(?(?:[a-h]|[ivx]{1,4})[.)][ \t]+(?=\S)", re.IGNORECASE)
_STEP_LINE = re.compile(r"^[ \t]*(?:[#*_]+[ \t]*)?step[ \t]+(?:\d{1,2}|one|two|three|four|five|six)\b", re.IGNORECASE)
_INLINE = re.compile(r"(?:(?:^|[.:;,!?])[ \t]*(\d{1,2})\.|(?<![\w(])\(?(\d{1,2})\))[ \t]+(?=\S)", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+\S")
_UNDERLINE = re.compile(r"^[ \t]{0,3}(?:={3,}|-{3,})[ \t]*$")
_MAX_HEADING_WORDS = 12
_TABLE = re.compile(r"^[ \t]*(?:\|[ \t]*:?-+|:?-{2,}):?[ \t]*\|[-:| \t]*$")
_HTML_ITEM = re.compile(rf"<li{_ATTRIBUTES}", re.IGNORECASE)


def markup(text: str) -> Markup:
    """See `Markup`. A dash before a line, or a number other than 1, makes a list only where there are two of them."""
    seen = _CODE.sub("code", prose(text))
    lines = seen.split("\n")
    underlined = sum(
        bool(_UNDERLINE.match(line)) and 0 < len(words(before)) <= _MAX_HEADING_WORDS
        for before, line in pairwise(lines)
    )
    return Markup(
        bold=len(_BOLD.findall(seen)),
        list_items=_list_items(seen, lines),
        headings=_count(_HEADING, lines) + underlined,
        tables=_count(_TABLE, lines),
    )


def _count(shape: re.Pattern[str], lines: Iterable[str]) -> int:
    return sum(bool(shape.match(line)) for line in lines)


def _list_items(seen: str, lines: Sequence[str]) -> int:
    numbers = [int(m[1] or m[2]) for m in map(NUMBERED.match, lines) if m]
    numbered = len(numbers) if len(numbers) > 1 or numbers == [1] else 0
    inline = _counted([int(m[1] or m[2]) for m in _INLINE.finditer(seen)])
    in_pairs = (_count(shape, lines) for shape in (DASH, _LETTERED, _STEP_LINE))
    marked = _count(BULLET, lines) + len(_HTML_ITEM.findall(seen))
    return marked + max(numbered, inline if inline > 2 else 0) + sum(n for n in in_pairs if n > 1)


def _counted(numbers: Iterable[int]) -> int:
    """How far they count 1, 2, 3 … in order, others left out."""
    reached = 0
    for number in numbers:
        reached += number == reached + 1
    return reached


_SMILEY = (
    r"[\u263a\u2764\u2728\U0001f600-\U0001f60f\U0001f617-\U0001f61a\U0001f642\U0001f917\U0001f44b\U0001f44d\U0001f44f"
    r"\U0001f389\U0001f31f\U0001f31e\U0001f49b-\U0001f49f\U0001f970]\ufe0f?|(?<!\S)[:;]-?\)"
)


@cache
def _friendly() -> re.Pattern[str]:
    return re.compile(rf"(?<!\bnot )(?<!n't )(?<!\bnever )\b{any_of('friendly')}(?!\w)|{_SMILEY}", re.IGNORECASE)


def friendly(text: str) -> frozenset[str]:
    """The friendly things said, in lower case; one that is said twice counts once, and so do all smileys together."""
    found = (m[0].lower() for m in _friendly().finditer(prose(text)))
    return frozenset(sign if sign[0].isalpha() else ":)" for sign in found)


def without_friendly(text: str) -> str:
    """What is left of a reply when the friendly things are taken away."""
    return _friendly().sub(" ", prose(text))


_EQUATION = re.compile(r"\d[\d.,$€£%\s()]*[-+*/x×÷·−][\d.,$€£%\s()+*/x×÷·−-]*=\s*[$€£]?\s*-?\d[\d.,]*")
_MIN_STEP_WORDS = 3


@cache
def _led() -> re.Pattern[str]:
    return re.compile(rf"^(?:(?:and|so|well|ok|okay)\W+)?{any_of('leads')}\b", re.IGNORECASE)


def steps(text: str) -> int:
    """How many steps of a way it shows: the most that numbers, first / then / finally, or calculations tell.

    A step has three words or is a calculation, and one that was there before is none: "Step 1. Step 2. Step 3." has
    no step at all.
    """
    seen = prose(text)
    items = [item for line in seen.split("\n") if (item := _step_text(line)) is not None]
    clauses = [clause for s in sentences(text) for clause in re.split(r"[;,]\s+(?:and\s+)?(?=then\b|finally\b)", s)]
    led = [clause for clause in clauses if _led().match(clause)]
    calculations = {re.sub(r"\s", "", m[0]) for m in _EQUATION.finditer(visible(text))}
    return max(_distinct(items), _distinct(_inline_items(seen)), _distinct(led), len(calculations))


def _step_text(line: str) -> str | None:
    marked = next((m for shape in (NUMBERED, _STEP_LINE, BULLET) if (m := shape.match(line))), None)
    return None if marked is None else line[marked.end() :]


def _inline_items(seen: str) -> list[str]:
    """The items of "Do this: 1. Wash it. 2. Cut it." """
    marks = list(_INLINE.finditer(seen))
    ends = [m.start() for m in marks[1:]] + [len(seen)]
    return [seen[mark.end() : end] for mark, end in zip(marks, ends, strict=True)] if len(marks) > 1 else []


def _distinct(texts: Iterable[str]) -> int:
    return len({said for text in texts if len(said := words(text)) >= _MIN_STEP_WORDS})

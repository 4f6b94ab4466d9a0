"""The text that an agent ends with, and the reference -> whether it is the answer.

    "The total is 1,250."         number   1250          right
    "About 39.37 inches"          number   39.37         right: as many decimals as the reference has
    "It falls on a Friday."       choice   Friday        right: the last of the choices that is named
    "Answer: \\boxed{x + 1}"       exact    x + 1         right: blanks, case and quotes do not count

Where a text says `Answer:` or `\\boxed{…}`, only what follows the last of them is read. The last value counts, so
naming many does not help.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

CheckName = Literal["exact", "number", "date", "choice", "json"]

_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_STATED = re.compile(r"\banswer\s*(?::|is\b:?)\s*(.+)", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?|(?<![\w.])[-+]?\.\d+")
_DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
_MAX_CHARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a text is compared with a reference. `choices` belong to `choice` alone."""

    name: CheckName = "exact"
    choices: tuple[str, ...] = ()

    def accepts(self, text: str, reference: str) -> bool:
        stated = _stated(text[-_MAX_CHARS:].replace("−", "-"))
        if self.name == "choice":
            return _last_choice(stated, self.choices) == reference.casefold()
        return _CHECKS[self.name](stated, reference)


def is_number(text: str) -> bool:
    """Whether a reference is one number and nothing else, so that it is best compared as one."""
    return _NUMBER.fullmatch(text.strip()) is not None


def _stated(text: str) -> str:
    if boxed := _BOXED.findall(text):
        return str(boxed[-1])
    last = text
    while found := _STATED.search(last):
        last = found[1]
    return last


def _is_same_text(text: str, reference: str) -> bool:
    return _plain(text) == _plain(reference)


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .\"'`*").casefold()


def _is_same_number(text: str, reference: str) -> bool:
    """A reference with decimals takes what rounds to it; a whole number only itself."""
    numbers = _NUMBER.findall(text)
    if not numbers:
        return False
    expected, got = (Decimal(number.replace(",", "")) for number in (reference.strip(), numbers[-1]))
    exponent = expected.as_tuple().exponent
    half_a_unit = Decimal(5).scaleb(exponent - 1) if isinstance(exponent, int) and exponent < 0 else Decimal(0)
    return abs(got - expected) <= half_a_unit


def _is_same_date(text: str, reference: str) -> bool:
    return _DATE.findall(text)[-1:] == [reference]


def _is_same_json(text: str, reference: str) -> bool:
    try:
        return bool(json.loads(text) == json.loads(reference))
    except (ValueError, RecursionError):
        return False


def _last_choice(text: str, choices: Sequence[str]) -> str | None:
    places = {
        choice.casefold(): [found.start() for found in re.finditer(rf"\b{re.escape(choice)}\b", text, re.IGNORECASE)]
        for choice in choices
    }
    named = [choice for choice, found in places.items() if found]
    return max(named, key=lambda choice: places[choice][-1], default=None)


_CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "exact": _is_same_text,
    "number": _is_same_number,
    "date": _is_same_date,
    "json": _is_same_json,
}

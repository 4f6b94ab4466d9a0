"""Numbers for people."""

from __future__ import annotations

_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"))
_SMALL = ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}


def clamp(value: float, low: float, high: float) -> float:
    """The value, or the end of the range that it passed."""
    if low > high:
        raise ValueError("the range is empty")
    return max(low, min(high, value))


def percent(part: float, whole: float, digits: int = 0) -> str:
    """`3 of 4` as `75%`; nothing of nothing is `0%`."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.{digits}f}%"


def roman(number: int) -> str:
    """1994 as MCMXCIV."""
    if not 0 < number < 4000:
        raise ValueError("Roman numerals go from 1 to 3999")
    letters = ""
    for value, sign in _ROMAN + _SMALL:
        while number >= value:
            letters += sign
            number -= value
    return letters


def size(text: str) -> int:
    """`10k` or `1.5 MB` as a number of bytes."""
    number = text.strip().lower().removesuffix("b").rstrip()
    unit = number[-1:] if number[-1:].isalpha() else ""
    if unit not in _UNITS:
        raise ValueError(f"unknown unit {unit!r}")
    return int(float(number.removesuffix(unit)) * _UNITS[unit])


def median(values: list[float]) -> float:
    """The one in the middle, or the mean of the two."""
    if not values:
        raise ValueError("no values have no median")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2

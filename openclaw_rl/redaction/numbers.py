"""Cards, accounts, people's numbers and phones: digits that check out, or that are written as only phones are.

Plain numbers, years, versions, addresses and sums are none of these: each kind has a checksum, a fixed way of writing
it, or a word before it that says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from openclaw_rl.redaction.rule import Rule, Seen, Span, rule

_CLUSTER = re.compile(r"[+(0-9][0-9 ()./+-]{6,}+", re.ASCII)
_MIN_DIGITS = 7
_RUN = re.compile(r"[0-9](?<![\w.][0-9])(?:[ -]?[0-9])*+", re.ASCII)
_GROUP = re.compile(r"[0-9]++", re.ASCII)
_CARD_NETWORKS = re.compile(
    r"4[0-9]{12}(?:[0-9]{3}){0,2}|3[47][0-9]{13}|3(?:0[0-59]|[689][0-9])[0-9]{11,16}"
    r"|(?:5[0-9]|6[0-9]|2[2-7]|35|81)[0-9]{11,17}",
    re.ASCII,
)

_IBAN_START = re.compile(r"[A-Z](?<![A-Za-z0-9][A-Z])[A-Z][0-9]{2}(?=[ -]?[A-Z0-9])", re.ASCII)
_COUNTRIES_BY_IBAN_LENGTH = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT SC",
    32: "LC",
}
IBAN_LENGTHS = {country: n for n, countries in _COUNTRIES_BY_IBAN_LENGTH.items() for country in countries.split()}

_SSN = re.compile(r"(?<![\w.-])(?!000|666|9)[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4}(?![\w-]|\.[0-9])", re.ASCII)
_SSN_WORDS = ("ssn", "social security")
_SSN_AFTER = re.compile(r"[^0-9\n\0]{0,24}((?!000|666|9)[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4})(?![\w-]|\.[0-9])", re.ASCII)
_CHINESE_ID = re.compile(
    r"(?<![\w-])[1-9][0-9]{5}(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}[0-9Xx](?![\w-])",
    re.ASCII,
)
CHINESE_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)

_END = r"(?![\w-]|[.,:/][0-9])"
_INTERNATIONAL = re.compile(rf"(?<![\w+.])\+[1-9](?:[ .\-/()]{{0,3}}[0-9]){{7,14}}{_END}", re.ASCII)
_DIALLED_ABROAD = re.compile(rf"(?<![\w.+-])(?<![0-9] )00[1-9][0-9]{{0,2}}(?:[ /-][0-9]{{2,8}}){{2,5}}{_END}", re.ASCII)
_AMERICAN = re.compile(
    r"(?<![\w.+\-/])(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ -]?[0-9]{3}[ .-]|[2-9][0-9]{2}([.-])[0-9]{3}\1"
    rf"|[2-9][0-9]{{2}}[ ][2-9][0-9]{{2}}[ -])[0-9]{{4}}{_END}",
    re.ASCII,
)
_NATIONAL = re.compile(
    rf"(?<![\w.+\-/:])(?<![0-9] )\(?0[1-9][0-9]{{0,4}}\)?(?:[ /-]{{1,3}}[0-9]{{2,8}}){{1,4}}{_END}"
    rf"|(?<![\w.+\-/:])0[1-9](?:\.[0-9]{{2}}){{4}}{_END}",
    re.ASCII,
)
_CHINESE_MOBILE = re.compile(rf"(?<![\w.+-])1[3-9][0-9]([ -]?)[0-9]{{4}}\1[0-9]{{4}}{_END}", re.ASCII)
_PHONE_WORDS = ("phone", "mobile", "cell", "tel", "fax", "whatsapp", "sms", "手机", "电话")
_PHONE_AFTER = re.compile(r"[^0-9\n\0_]{0,24}([0-9]{7,15})(?![\w-]|\.[0-9])", re.ASCII)
_DATE = re.compile(r"(?:[0-9]{1,2}[ /-]){2}(?:19|20)[0-9]{2}(?![0-9])", re.ASCII)


def passes_luhn(digits: str) -> bool:
    """The check digit of cards."""
    doubled = (int(d) if i % 2 == 0 else sum(divmod(2 * int(d), 10)) for i, d in enumerate(reversed(digits)))
    return sum(doubled) % 10 == 0


def passes_mod_97(iban: str) -> bool:
    """The two check digits of an account number."""
    moved = iban[4:] + iban[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1


def passes_mod_11(number: str) -> bool:
    """The last character of a Chinese citizen's number."""
    total = sum(int(digit) * weight for digit, weight in zip(number, CHINESE_ID_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == number[17].upper()


def _cards(seen: Seen) -> Iterator[Span]:
    """Groups of digits in a row, wherever a number of the right length begins and ends with a group."""
    text = seen.text
    for run in _RUN.finditer(text):
        if run.end() - run.start() < 13:
            continue
        after = text[run.end() : run.end() + 1]
        groups = [group.span() for group in _GROUP.finditer(text, run.start(), run.end())]
        if after.isalnum() or after == "_":
            groups.pop()
        first = 0
        while first < len(groups):
            last = _card_end(text, groups, first)
            if last is not None:
                yield groups[first][0], groups[last][1]
                first = last
            first += 1


def _card_end(text: str, groups: list[tuple[int, int]], first: int) -> int | None:
    if groups[first][1] - groups[first][0] < 4:
        return None
    digits = ""
    for last in range(first, min(first + 6, len(groups))):
        start, end = groups[last]
        digits += text[start:end] if end - start <= 19 else "x" * 20
        if len(digits) > 19 or (last > first and groups[last - 1][1] - groups[last - 1][0] < 3):
            return None
        if len(digits) >= 13 and _CARD_NETWORKS.fullmatch(digits) and passes_luhn(digits):
            return last
    return None


def _ibans(seen: Seen) -> Iterator[Span]:
    text = seen.text
    for match in _IBAN_START.finditer(text):
        length = IBAN_LENGTHS.get(match[0][:2])
        if length is None:
            continue
        kept, end = "", match.start()
        while len(kept) < length and end < len(text):
            character = text[end]
            if character.isascii() and (character.isdigit() or character.isupper()):
                kept += character
            elif character not in " -" or text[end - 1] in " -":
                break
            end += 1
        following = text[end : end + 1]
        if len(kept) == length and not (following.isascii() and following.isalnum()) and passes_mod_97(kept):
            yield match.start(), end


def _in_clusters(
    pattern: re.Pattern[str], check: Callable[[str], bool] = lambda _: True
) -> Callable[[Seen], Iterator[Span]]:
    """Finds `pattern` where digits stand close together; most of a text is then passed over by one quick search."""

    def search(seen: Seen) -> Iterator[Span]:
        for cluster in _CLUSTER.finditer(seen.text):
            if sum(map(str.isdigit, cluster[0])) >= _MIN_DIGITS:
                # Two characters more: what follows a number decides whether it is one.
                found = pattern.finditer(seen.text, cluster.start(), cluster.end() + 2)
                yield from (match.span() for match in found if check(match[0]))

    return search


def _after(words: Sequence[str], pattern: re.Pattern[str]) -> Callable[[Seen], Iterator[Span]]:
    """Finds what the first group of `pattern` holds behind one of these words."""

    def search(seen: Seen) -> Iterator[Span]:
        end = 0
        for at, word in seen.places(words):
            before = seen.lowered[at - 1 : at]
            match = pattern.match(seen.text, at + len(word)) if at >= end else None
            if match is not None and not (before.isascii() and (before.isalpha() or before == "_")):
                yield match.span(1)
                end = match.end()

    return search


def _is_no_decimal(number: str) -> bool:
    """`+12.34567890` is a sum."""
    return not re.fullmatch(r"\+[0-9]+\.[0-9]+", number)


def _is_national(number: str) -> bool:
    num_digits = sum(map(str.isdigit, number))
    return 9 <= num_digits <= 12 and not _DATE.match(number.lstrip("("))


RULES: tuple[Rule, ...] = (
    rule("id-number", (), _in_clusters(_CHINESE_ID, passes_mod_11)),
    rule("iban", (), _ibans),
    rule("card", (), _cards),
    rule("ssn", ("-",), _in_clusters(_SSN)),
    rule("ssn", _SSN_WORDS, _after(_SSN_WORDS, _SSN_AFTER)),
    rule("phone", ("+",), _in_clusters(_INTERNATIONAL, _is_no_decimal)),
    rule("phone", ("00",), _in_clusters(_DIALLED_ABROAD)),
    rule("phone", (), _in_clusters(_AMERICAN)),
    rule("phone", ("0",), _in_clusters(_NATIONAL, _is_national)),
    rule("phone", ("1",), _in_clusters(_CHINESE_MOBILE)),
    rule("phone", _PHONE_WORDS, _after(_PHONE_WORDS, _PHONE_AFTER)),
)

"""Text for people."""

from __future__ import annotations


def slug(title: str, limit: int = 40) -> str:
    """A title as a part of a URL: lower case, with dashes, and no longer than the limit."""
    letters = [letter.lower() if letter.isalnum() else " " for letter in title]
    parts = "".join(letters).split()
    short: list[str] = []
    for part in parts:
        if sum(map(len, short)) + len(short) + len(part) > limit:
            break
        short.append(part)
    return "-".join(short)


def wrap(text: str, width: int) -> list[str]:
    """Lines of whole words, as full as the width allows. A word that is wider has a line of its own."""
    if width < 1:
        raise ValueError("a line has at least one column")
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        lines.append(line)
    return lines


def plural(count: int, one: str, many: str = "") -> str:
    """A number and its noun: `1 file`, `3 files`."""
    if count == 1:
        return f"{count} {one}"
    return f"{count} {many or one + 's'}"


def listed(items: list[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def shorten(text: str, limit: int, mark: str = "...") -> str:
    """The text, or its beginning and a mark where it is too long."""
    if len(text) <= limit:
        return text
    return text[: max(0, limit - len(mark))] + mark

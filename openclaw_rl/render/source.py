"""A text that is still growing, and the few grammar steps that can wait for more of it.

A grammar is a generator: it reads the source and yields when what is there does not decide its question. So a parser
reads like one for a whole text, and how the text was cut into pieces cannot change its result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A grammar step with a result of type T; each yield asks for more text."""

QUOTE_OR_ESCAPE = re.compile(r'["\\]')


class Source:
    """`text[at:]` is unread. `hold` keeps what comes from here on for `rollback`, until `release`."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.is_ended = False
        self._held: int | None = None

    def feed(self, text: str) -> None:
        cut = self.at if self._held is None else self._held
        self.text = self.text[cut:] + text
        self.at -= cut
        self._held = None if self._held is None else 0

    def hold(self) -> None:
        self._held = self.at

    def release(self) -> None:
        self._held = None

    def rollback(self) -> None:
        assert self._held is not None
        self.at, self._held = self._held, None

    def take(self, count: int) -> str:
        """The next `count` characters, now read."""
        begin, self.at = self.at, self.at + count
        return self.text[begin : self.at]

    def char(self) -> Steps[str]:
        """The next character, unread; empty at the end of the text."""
        while self.at == len(self.text) and not self.is_ended:
            yield
        return self.text[self.at : self.at + 1]

    def skip(self, chars: str) -> Steps[None]:
        """Read over any of `chars`."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in chars:
                self.at += 1
            if self.at < len(self.text) or self.is_ended:
                return
            yield

    def literal(self, expected: str) -> Steps[bool]:
        """Read `expected` if it comes next."""
        while len(self.text) - self.at < len(expected):
            if self.is_ended or not expected.startswith(self.text[self.at :]):
                return False
            yield
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def rest(self, emit: Callable[[str], object]) -> Steps[None]:
        """Emit everything that is still to come."""
        while True:
            emit(self.take(len(self.text) - self.at))
            if self.is_ended:
                return
            yield

    def until(self, tag: str, emit: Callable[[str], object]) -> Steps[bool]:
        """Emit everything before `tag` and read the tag; False if the text ended without one."""
        while True:
            found = self.text.find(tag, self.at)
            if found >= 0:
                emit(self.take(found - self.at))
                self.at += len(tag)
                return True
            kept = 0 if self.is_ended else _overlap(self.text[max(self.at, len(self.text) - len(tag) + 1) :], tag)
            emit(self.take(len(self.text) - kept - self.at))
            if self.is_ended:
                return False
            yield

    def string(self) -> Steps[str | None]:
        """Read a JSON string literal, as written; None, and nothing read, if none comes or it does not end."""
        if (yield from self.char()) != '"':
            return None
        size = 1
        while True:
            found = QUOTE_OR_ESCAPE.search(self.text, self.at + size)
            if found is None:
                size = len(self.text) - self.at
            elif found.group() == '"':
                return self.take(found.end() - self.at)
            elif found.end() < len(self.text):
                size = found.end() + 1 - self.at
                continue
            if self.is_ended:
                return None
            yield


def _overlap(text: str, tag: str) -> int:
    """The length of the longest end of `text` that begins `tag`."""
    return next((len(text) - i for i in range(len(text)) if tag.startswith(text[i:])), 0)

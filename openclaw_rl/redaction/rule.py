"""What a kind of secret is to the search, what the search sees of a text, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

_GAP = "\0"
"""Stands where a secret was found before. No rule matches it, so nothing is found across it or within it."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """The characters `start` to `end` of a text are a secret of this kind."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A text and, character for character, the same in lower case."""

    text: str
    lowered: str

    @classmethod
    def of(cls, text: str) -> Self:
        lowered = text.lower()
        if len(lowered) != len(text):  # a few letters become two
            lowered = "".join(low if len(low := character.lower()) == 1 else character for character in text)
        return cls(text, lowered)

    def without(self, found: Iterable[Found]) -> Seen:
        """The same with gaps in place of these."""
        spans = [(one.start, one.end) for one in found]
        return Seen(_blanked(self.text, spans), _blanked(self.lowered, spans))

    def places(self, words: Iterable[str]) -> list[tuple[int, str]]:
        """Where these words stand, in any case, in order; of those that begin at one place the longest."""
        found: dict[int, str] = {}
        for word in words:
            at = self.lowered.find(word)
            while at >= 0:
                if len(word) > len(found.get(at, "")):
                    found[at] = word
                at = self.lowered.find(word, at + len(word))
        return sorted(found.items())


@dataclass(frozen=True, slots=True)
class Rule:
    """How secrets of `kinds` are found. Where none of `signs` occurs in the lower-cased text, none is there."""

    kinds: tuple[str, ...]
    signs: tuple[str, ...]
    search: Callable[[Seen], Iterable[Found]]

    def find(self, seen: Seen) -> list[Found]:
        """What there is, in order; no two overlap."""
        if self.signs and not any(sign in seen.lowered for sign in self.signs):
            return []
        return list(self.search(seen))


def rule(kind: str, signs: tuple[str, ...], spans: Callable[[Seen], Iterable[Span]]) -> Rule:
    """A rule for one kind, from what finds the places of it."""
    return Rule((kind,), signs, lambda seen: (Found(kind, *span) for span in spans(seen)))


def _blanked(text: str, spans: Sequence[Span]) -> str:
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        parts += (text[end:start], _GAP * (stop - start))
        end = stop
    return "".join((*parts, text[end:]))

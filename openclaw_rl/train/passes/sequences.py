"""What is read: prompts with their responses, and the parts of a bounded number of tokens in which they are read.

What a part weighs is how many tokens its reader computes for it: sequences with a common beginning weigh little beside
each other, so whoever sorts them by conversation gets few parts. What is larger than a part is one by itself; a
conversation that is larger is cut between two of its answers, and what they share is computed once in each part.
Knows no model and no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Sequenced:
    """A prompt and the response after it."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]

    def __len__(self) -> int:
        """Tokens that are read: nobody asks what follows the last one."""
        return len(self.prompt_ids) + len(self.response_ids) - 1

    @cached_property
    def ids(self) -> Ints:
        """These tokens. Once only: of 27,000 it takes a millisecond, and a step has a hundred such sequences."""
        return np.array(self.prompt_ids + self.response_ids[:-1], dtype=np.int64)


IDLE = Sequenced((0,), (0,))
"""The least that can be read, for whoever reads along with others and has nothing of its own."""


class Counter(Protocol):
    """Counts what is computed for the sequences that were added."""

    def add(self, sequence: Sequenced) -> int:
        """How many tokens this one brings."""
        ...


class Each:
    """A `Counter` where every sequence is computed whole."""

    def add(self, sequence: Sequenced) -> int:
        return len(sequence)


def num_tokens(counter: Counter, sequences: Sequence[Sequenced]) -> int:
    return sum(map(counter.add, sequences))


def in_parts(
    items: Sequence[_Item],
    sequences: Callable[[_Item], Sequence[Sequenced]],
    counter: Callable[[], Counter],
    *,
    max_tokens: int,
    max_items: int | None = None,
) -> Iterator[list[_Item]]:
    """Every item once, in parts of at most so many tokens and items."""
    part: list[_Item] = []
    counted, total = counter(), 0
    for item in items:
        added = num_tokens(counted, sequences(item))
        if part and (len(part) == max_items or total + added > max_tokens):
            yield part
            part, counted = [], counter()
            total, added = 0, num_tokens(counted, sequences(item))
        part.append(item)
        total += added
    if part:
        yield part

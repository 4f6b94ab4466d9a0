"""Several processes that take one step together, as each of them sees the others; alone, a crew of one.

Each has all samples and computes some of them (`share_out`). Whoever computes asks the others in the same order: a
network that is sharded over them cannot be read by one alone. So where they have different numbers of parts, those that
are done read along with nothing (`level`). What they agree on is plain numbers. Knows no model and no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

_Part = TypeVar("_Part")


class Crew(Protocol):
    """Every member calls the same methods in the same order."""

    @property
    def number(self) -> int:
        """Which of them this is, from 0 on. Number 0 writes what is written once."""
        ...

    @property
    def size(self) -> int: ...

    def level(self, parts: Iterable[_Part]) -> Iterator[_Part | None]:
        """One's own parts, then None for as long as another member still has one."""
        ...

    def gathered(self, value: Any) -> list[Any]:
        """What each of them gave, in their order: JSON."""
        ...

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Gradients of parameters that every member has whole become the sum over all members."""
        ...

    def clip(self, parameters: Sequence[Tensor], most: float) -> float:
        """Shortens a gradient that is longer than `most`; its length before that, over all members' shares."""
        ...


class Alone:
    """A crew of one."""

    number = 0
    size = 1

    def level(self, parts: Iterable[_Part]) -> Iterator[_Part | None]:
        return iter(parts)

    def gathered(self, value: Any) -> list[Any]:
        return [value]

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        return None

    def clip(self, parameters: Sequence[Tensor], most: float) -> float:
        return float(torch.nn.utils.clip_grad_norm_(parameters, most))


ALONE = Alone()


def share_out(weights: Sequence[int], num_shares: int) -> list[list[int]]:
    """The numbers of things that weigh so much -> shares that weigh about the same, each in the things' order.

    The heaviest goes first, always to the lightest share: none is heavier than 4/3 of the best there is (Graham 1969,
    https://doi.org/10.1137/0117039). The same everywhere, so that nobody has to be told.
    """
    shares: list[list[int]] = [[] for _ in range(num_shares)]
    loads = [0] * num_shares
    for thing in sorted(range(len(weights)), key=lambda at: (-weights[at], at)):
        lightest = loads.index(min(loads))
        shares[lightest].append(thing)
        loads[lightest] += weights[thing]
    return [sorted(share) for share in shares]

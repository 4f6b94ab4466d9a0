"""Token sequences -> the keys and values that were computed for them, kept to be used again.

A *strand* is the cache of one sequence of tokens, in one piece of memory. A request takes the strand that shares the
longest prefix with its prompt: the strand itself if little of it is lost by that, else a copy of the shared part, so
that forks and parallel turns of one session never disturb each other. Strands that nobody uses stay until the memory
is wanted, the least recently used go first.

A strand belongs to a salt: requests of another one copy its beginning at most, as far as both allow, and never take it
over. How much a request found counts what its own salt had left: whoever guesses at the words of another sees the same
numbers whether the guess is right or wrong. What has no salt serves nobody, and does not outlive its request.

Each part of a strand names the version that computed it; `may_reuse` says which versions may stand in for another.
They do only for a long beginning: a short one is read anew at once, and then all of the answer is the new version's.
Not thread-safe; knows no scheduler and no sampling. Axes: L layers, K key/value heads, C capacity, D head dimension.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from openclaw_rl.errors import ConfigError
from openclaw_rl.types import BASE_VERSION

MIN_SHARED = 16
"""A shorter common prefix is not worth a strand: two strangers' prompts begin with the same few control tokens."""

MIN_OLDER = 512
"""Fewer tokens of older versions are not worth it: half a second of a CPU, and the new version says what it learned."""

_GRANULE = 64
"""Capacities are multiples of this, so that a strand does not grow with every token."""

MayReuse = Callable[[str], bool]
"""Whether keys and values computed by this version serve the request."""


class Storage(Protocol):
    """The memory of one strand."""

    @property
    def is_cuttable(self) -> bool:
        """Whether the last tokens can be forgotten; if not, a strand can only be continued as it is."""
        ...

    def resized(self, num_tokens: int, capacity: int) -> Self:
        """A storage of another capacity with a copy of the first `num_tokens` tokens."""
        ...

    def cut(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens."""
        ...


S = TypeVar("S", bound=Storage)


@dataclass(slots=True)
class TensorStorage:
    """Keys and values as one tensor [L, 2, K, C, D]."""

    kv: Tensor
    is_cuttable: ClassVar[bool] = True

    def resized(self, num_tokens: int, capacity: int) -> TensorStorage:
        num_layers, two, num_heads, _, head_dim = self.kv.shape
        kv = self.kv.new_empty(num_layers, two, num_heads, capacity, head_dim)
        kv[:, :, :, :num_tokens] = self.kv[:, :, :, :num_tokens]
        return TensorStorage(kv)

    def cut(self, num_tokens: int) -> None:
        pass  # what lies behind is written over


@dataclass(slots=True, eq=False)
class Strand(Generic[S]):
    """The cache of `token_ids`. `made_by` holds (end, version) for each stretch, in order.

    `salt` says whose it is, and `num_shareable` how many of the first tokens serve other salts too. `num_own` is what
    the request that uses it found among the strands of its own salt.
    """

    storage: S
    capacity: int
    token_ids: array[int] = field(default_factory=lambda: array("I"))
    made_by: list[tuple[int, str]] = field(default_factory=list)
    is_busy: bool = True
    last_used: int = 0
    salt: str = ""
    num_shareable: int = 0
    num_own: int = 0

    @property
    def length(self) -> int:
        return len(self.token_ids)

    @property
    def kv(self: Strand[TensorStorage]) -> Tensor:
        return self.storage.kv

    @property
    def oldest_version(self) -> str | None:
        """The version of the oldest stretch; None if the strand is empty."""
        return self.made_by[0][1] if self.made_by else None

    def append(self, token_ids: Sequence[int], version: str) -> None:
        """These tokens were computed behind the others."""
        self.token_ids.extend(token_ids)
        if self.made_by and self.made_by[-1][1] == version:
            self.made_by.pop()
        self.made_by.append((self.length, version))

    def num_usable(self, token_ids: Sequence[int], version: str, may_reuse: MayReuse) -> int:
        """How many of the first tokens of `token_ids` this strand holds in a form that serves `version`."""
        own = self._end_of(lambda maker: maker == version)
        shared = common_prefix(self.token_ids[: self._end_of(may_reuse)], token_ids)
        return shared if shared - own >= MIN_OLDER else min(shared, own)

    def _end_of(self, serves: MayReuse) -> int:
        """Where the first stretch begins that does not serve."""
        return next((start for start, maker in self._stretches() if not serves(maker)), self.length)

    def _stretches(self) -> Iterator[tuple[int, str]]:
        """Start and maker of each."""
        start = 0
        for end, maker in self.made_by:
            yield start, maker
            start = end

    def cut(self, num_tokens: int) -> None:
        del self.token_ids[num_tokens:]
        self.storage.cut(num_tokens)
        kept = [(min(end, num_tokens), version) for end, version in self.made_by]
        self.made_by = [part for i, part in enumerate(kept) if i == 0 or part[0] > kept[i - 1][0]] if num_tokens else []


class Strands(Generic[S]):
    """All strands of an engine, within `max_tokens` of capacity altogether."""

    def __init__(self, new_storage: Callable[[int], S], *, max_tokens: int, tokens_per_strand: int = 0) -> None:
        """`tokens_per_strand`: what a strand takes beside its capacity, however short it is."""
        self._new_storage = new_storage
        self._tokens_per_strand = tokens_per_strand
        # In whole granules: else a strand of exactly so many tokens would never fit, and who needs it wait for ever.
        self._max_tokens = max_tokens // _GRANULE * _GRANULE
        self._strands: list[Strand[S]] = []
        self._clock = count()

    def __len__(self) -> int:
        return len(self._strands)

    @property
    def num_tokens(self) -> int:
        """Tokens of capacity that are taken."""
        return sum(map(self._weight, self._strands))

    @property
    def max_tokens(self) -> int:
        """The longest strand that fits."""
        return max(0, self._max_tokens - self._tokens_per_strand) // _GRANULE * _GRANULE

    def take(
        self,
        token_ids: Sequence[int],
        version: str,
        may_reuse: MayReuse,
        *,
        room: int,
        salt: str,
        num_shareable: int = 0,
    ) -> Strand[S] | None:
        """A strand for this prompt of `version`, with capacity for `room` tokens and as much of its prefix as there is.

        At least the last token is left to compute, because its logits are wanted. None if there is no memory left.
        """
        wanted = array("I", token_ids[:-1])

        def usable(strand: Strand[S], most: int) -> int:
            return strand.num_usable(wanted[:most], version, may_reuse)

        own = [(usable(strand, len(wanted)), strand) for strand in self._strands if salt and strand.salt == salt]
        lent = [
            (usable(strand, most), strand)
            for strand in self._strands
            if salt and strand.salt not in ("", salt) and (most := min(num_shareable, strand.num_shareable))
        ]
        num_own, found = _longest(own)
        num_lent, lender = _longest(lent)
        taken = None
        if lender is not None and num_lent > num_own and lender.storage.is_cuttable:
            taken = self._copy(lender, num_lent, room)
        if taken is None:
            taken = self._new(room) if found is None else self._continued(found, num_own, room)
        if taken is not None:
            taken.salt, taken.num_shareable, taken.num_own = salt, num_shareable, num_own
        return taken

    def reserve(self, strand: Strand[S], room: int) -> bool:
        """Make the strand hold `room` tokens; False if there is no memory for that."""
        if room <= strand.capacity:
            return True
        # By half as much again: a long answer is copied a few times, not at every step.
        for capacity in sorted({_rounded(room), _rounded(max(room, strand.capacity * 3 // 2))}, reverse=True):
            if self._make_room(capacity - strand.capacity):
                strand.storage = strand.storage.resized(strand.length, capacity)
                strand.capacity = capacity
                return True
        return False

    def release(self, strand: Strand[S]) -> None:
        """Nobody computes on this strand any more; it stays for those who can use it."""
        strand.is_busy = False
        strand.last_used = next(self._clock)
        if not strand.length or not strand.salt:
            self._strands.remove(strand)

    def drop(self, strand: Strand[S]) -> None:
        """Forget the strand, because what it holds is in doubt or its memory is needed."""
        self._strands.remove(strand)

    def forget(self, version: str) -> None:
        """Drop the idle strands that this version made any part of."""
        self._strands = [s for s in self._strands if s.is_busy or all(name != version for _, name in s.made_by)]

    def forget_salts(self, salts: Collection[str]) -> None:
        """Drop the idle strands of these salts. Nobody takes of the busy ones any more, and they go when released."""
        for strand in [strand for strand in self._strands if strand.salt in salts]:
            strand.salt = ""
            if not strand.is_busy:
                self.drop(strand)

    def _continued(self, found: Strand[S], shared: int, room: int) -> Strand[S] | None:
        """A strand of the same salt, or a copy of what is shared of it."""
        loses_little = found.length - shared <= max(_GRANULE, shared // 4)
        if not found.is_busy and loses_little:
            return self._taken_over(found, shared, room)
        if (copy := self._copy(found, shared, room)) is not None or found.is_busy:
            return copy
        return self._taken_over(found, shared, room)  # there is no memory for two

    def _new(self, room: int) -> Strand[S] | None:
        capacity = _rounded(room)
        if not self._make_room(capacity + self._tokens_per_strand):
            return None
        strand = Strand(self._new_storage(capacity), capacity)
        self._strands.append(strand)
        return strand

    def _copy(self, origin: Strand[S], num_tokens: int, room: int) -> Strand[S] | None:
        capacity = _rounded(room)
        if not self._make_room(capacity + self._tokens_per_strand, keep=origin):
            return None
        strand = Strand(origin.storage.resized(num_tokens, capacity), capacity, origin.token_ids[:], origin.made_by[:])
        strand.cut(num_tokens)
        origin.last_used = next(self._clock)
        self._strands.append(strand)
        return strand

    def _taken_over(self, strand: Strand[S], num_tokens: int, room: int) -> Strand[S] | None:
        strand.is_busy = True
        strand.cut(num_tokens)
        if self.reserve(strand, room):
            return strand
        self.release(strand)
        return None

    def _make_room(self, num_tokens: int, keep: Strand[S] | None = None) -> bool:
        """Let idle strands go, the least recently used first, until so many tokens fit; none if they never would."""
        idle = [strand for strand in self._strands if not strand.is_busy and strand is not keep]
        idle.sort(key=lambda strand: strand.last_used)
        free = self._max_tokens - self.num_tokens
        if free + sum(map(self._weight, idle)) < num_tokens:
            return False
        for strand in idle:
            if free >= num_tokens:
                break
            self.drop(strand)
            free += self._weight(strand)
        return True

    def _weight(self, strand: Strand[S]) -> int:
        return strand.capacity + self._tokens_per_strand


def _longest(found: Sequence[tuple[int, Strand[S]]]) -> tuple[int, Strand[S] | None]:
    """The strand that can be used furthest, if it is worth it. Of two equally good ones the idle one: it need not be
    copied. One that cannot be cut is used whole, by one request at a time, or not at all."""
    worth = [
        (usable, strand)
        for usable, strand in found
        if usable >= MIN_SHARED and (strand.storage.is_cuttable or (not strand.is_busy and usable == strand.length))
    ]
    return max(worth, key=lambda one: (one[0], not one[1].is_busy), default=(0, None))


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many items two sequences of one type begin with in common; compares slices, so in C."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while low < high:  # the first `low` items are equal, the first `high` are not
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def reuse_rule(setting: str) -> Callable[[str], MayReuse]:
    """`exact` or `reuse(n)` -> for a version, the versions whose keys and values may serve its requests.

    `reuse(n)` lets those of up to n updates ago stand in, never later ones. The base weights are version 0 of
    every line.
    """
    if setting == "exact":
        return lambda version: lambda other: other == version
    if not (found := re.fullmatch(r"reuse\(([1-9]\d*)\)", setting)):
        raise ConfigError(f"engine.kv_after_update must be exact or reuse(n) with n >= 1, got {setting!r}")
    most = int(found[1])

    def serves(version: str) -> MayReuse:
        line, number = _line_and_number(version)

        def may_reuse(other: str) -> bool:
            other_line, other_number = _line_and_number(other)
            of_this_line = other_line == line or other == BASE_VERSION
            return other == version or (of_this_line and 1 <= number - other_number <= most)

        return may_reuse

    return serves


def _line_and_number(version: str) -> tuple[str, int]:
    """`v3`, `v3.alice` and `v3-env.terminal` -> the line and the number in it; any other label is a line of its own."""
    found = re.fullmatch(r"v(0|[1-9]\d*)((?:[.-].+)?)", version)
    return (found[2], int(found[1])) if found else (version, -1)


def _rounded(num_tokens: int) -> int:
    return -(-num_tokens // _GRANULE) * _GRANULE


def new_tensor_storage(
    num_layers: int, num_kv_heads: int, head_dim: int, *, dtype: torch.dtype, device: torch.device
) -> Callable[[int], TensorStorage]:
    """Makes storages for a model of this shape."""

    def new(capacity: int) -> TensorStorage:
        return TensorStorage(torch.empty(num_layers, 2, num_kv_heads, capacity, head_dim, dtype=dtype, device=device))

    return new

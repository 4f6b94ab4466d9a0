"""Samples and the shape of a model -> tokens, FLOPs and seconds that a step must take, by formulas on one page.

FLOPs of a layer's forward pass, two for each multiplication that is added up:

    linear      2 · weights                              a token
    adapter     2 · rank · (in + out), all matrices      a token
    attention   4 · query heads · head dim               a pair of a token and one that it sees, itself included
    head        2 · hidden · vocabulary                  a row whose distribution is asked for, once and not a layer

Back, an adapter's step needs the gradient of every input (1 × linear), of inputs and weights of the adapter (2 ×), of
what attention and head read (2 × and 1 ×); with all weights learning, linear and head are 2 ×. What is computed again
stands apart: the layers where activations are not kept, the head where logits are not, and in any case half of
attention's forward pass, whose scores its backward pass makes anew. Norms, RoPE, softmax, SwiGLU and the optimiser are
left out: they take time and hardly any FLOPs. Knows no tensor and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Self

import numpy as np

from openclaw_rl.model.architecture import MODULES, Architecture
from openclaw_rl.types import Sample

Keep = Literal["all", "attention", "nothing"]
"""What of a layer is kept for the way back, as in `train/passes/activations.py`; the rest is computed again there."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a pass has to do."""

    tokens: int = 0
    pairs: int = 0
    """Of a token and one that it sees, itself included."""
    rows: int = 0
    """Whose distribution is asked for."""

    def __add__(self, other: Self) -> Self:
        return type(self)(self.tokens + other.tokens, self.pairs + other.pairs, self.rows + other.rows)


@dataclass(frozen=True, slots=True)
class Read:
    """A sequence: the ids that are read, and how many rows at its end are asked about."""

    ids: tuple[int, ...]
    rows: int


def student_reads(samples: Sequence[Sample]) -> list[Read]:
    return [_read(sample.prompt_ids, sample) for sample in samples]


def teacher_reads(samples: Sequence[Sample]) -> list[Read]:
    return [_read(sample.teacher_prompt(one), sample) for sample in samples for one in sample.candidates]


def _read(prompt: tuple[int, ...], sample: Sample) -> Read:
    return Read(prompt + sample.response_ids[:-1], len(sample.response_ids))


def load_apart(reads: Iterable[Read]) -> Load:
    """Every sequence whole."""
    return sum((Load(len(one.ids), _triangle(len(one.ids)), one.rows) for one in reads), Load())


def load_folded(reads: Iterable[Read]) -> Load:
    """Every distinct token once: behind its neighbour in sorted order a sequence adds what they do not share."""
    ordered = sorted(reads, key=lambda one: one.ids)
    shared = [0, *(_num_shared(first.ids, second.ids) for first, second in pairwise(ordered))]
    return sum(
        (
            Load(len(one.ids) - same, _triangle(len(one.ids)) - _triangle(same), one.rows)
            for one, same in zip(ordered, shared, strict=True)
        ),
        Load(),
    )


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def _triangle(size: int) -> int:
    return size * (size + 1) // 2


@dataclass(frozen=True, slots=True)
class Flops:
    """Of a step or a part of it."""

    forward: float = 0.0
    recompute: float = 0.0
    backward: float = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.forward + other.forward, self.recompute + other.recompute, self.backward + other.backward
        )

    @property
    def executed(self) -> float:
        return self.forward + self.recompute + self.backward

    @property
    def model(self) -> float:
        """Without what is computed twice to spare memory: what `mfu` counts."""
        return self.forward + self.backward


@dataclass(frozen=True, slots=True)
class _Parts:
    linear: float
    adapter: float
    attention: float
    head: float

    @property
    def all(self) -> float:
        return self.linear + self.adapter + self.attention + self.head


def _forward(arch: Architecture, load: Load, rank: int) -> _Parts:
    matrices = [part for module in MODULES for part in arch.projections(module)]
    weights = sum(one.in_features * one.out_features for one in matrices)
    sides = sum(one.in_features + one.out_features for one in matrices)
    return _Parts(
        linear=2.0 * arch.num_layers * weights * load.tokens,
        adapter=2.0 * arch.num_layers * rank * sides * load.tokens,
        attention=4.0 * arch.num_layers * arch.query_size * load.pairs,
        head=2.0 * arch.hidden_size * arch.vocab_size * load.rows,
    )


def reading(arch: Architecture, load: Load, *, rank: int = 0) -> Flops:
    """A pass without gradient; rank 0 is without an adapter."""
    return Flops(forward=_forward(arch, load, rank).all)


def learning(arch: Architecture, load: Load, *, rank: int, keep: Keep, head_again: bool) -> Flops:
    """Forward and backward. With rank 0 every weight learns, else the adapter alone."""
    once = _forward(arch, load, rank)
    own = 1.0 if rank else 2.0
    again = once.attention * (1.5 if keep == "nothing" else 0.5)
    if keep != "all":
        again += once.linear + once.adapter
    return Flops(
        forward=once.all,
        recompute=again + (once.head if head_again else 0.0),
        backward=own * once.linear + 2 * once.adapter + 2 * once.attention + own * once.head,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Both sides of one step: tokens that go through the model, forward passes only, and FLOPs."""

    our_tokens: int
    our_learning: Flops
    our_teachers: Flops
    reference_tokens: int
    reference_learning: Flops
    reference_others: Flops

    @property
    def ours(self) -> Flops:
        return self.our_learning + self.our_teachers

    @property
    def reference(self) -> Flops:
        return self.reference_learning + self.reference_others

    @property
    def bound(self) -> float:
        """How much cheaper ours is by arithmetic: both sides at the same rate."""
        return self.reference.executed / self.ours.executed

    @property
    def bound_learn(self) -> float:
        """The same of the student's forward and backward pass alone."""
        return self.reference_learning.executed / self.our_learning.executed


def bill(arch: Architecture, samples: Sequence[Sample], *, rank: int, keep: Keep, head_again: bool) -> Bill:
    """Ours folds students and teachers into a tree each; the reference reads every turn whole, six times."""
    student, teacher = student_reads(samples), teacher_reads(samples)
    folded, taught = load_folded(student), load_folded(teacher)
    whole, hinted = load_apart(student), load_apart(teacher)
    old, reference = reading(arch, whole, rank=rank), reading(arch, whole)
    return Bill(
        our_tokens=folded.tokens + taught.tokens,
        our_learning=learning(arch, folded, rank=rank, keep=keep, head_again=head_again),
        our_teachers=reading(arch, taught),
        reference_tokens=3 * whole.tokens + hinted.tokens,
        reference_learning=learning(arch, whole, rank=rank, keep="nothing", head_again=False),
        reference_others=old + reference + reading(arch, hinted),
    )


def quadratic(sizes: Sequence[int], seconds: Sequence[float]) -> Callable[[int], float]:
    """Seconds by size, least squares: constant, linear layers, attention. Three sizes at least."""
    scale = max(sizes)  # squares of 75,000 would cost digits
    fitted = np.polyfit(np.array(sizes) / scale, seconds, 2)
    return lambda size: float(np.polyval(fitted, size / scale))

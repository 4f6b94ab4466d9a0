"""Random trees that keep the layout which `fold.Path` promises, and dense attention, which says what is right there.

Axes: T tokens, N query heads, K key/value heads, D head dim.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from openclaw_rl.train.tree.fold import Path


@dataclass(slots=True)
class Grown:
    """A path to be, and what leaves it, by offset."""

    length: int
    leaving: dict[int, list[Grown]] = field(default_factory=dict)


def laid_out(*roots: Grown) -> list[Path]:
    """Paths one behind the other: each one, then its subtrees by the token they leave at."""
    paths: list[Path] = []
    for root in roots:
        _place(root, None, 0, paths)
    return paths


def _place(grown: Grown, parent: int | None, offset: int, paths: list[Path]) -> int:
    index, start = len(paths), paths[-1].stop if paths else 0
    stop = start + grown.length
    paths.append(Path(start=start, stop=stop, end=stop, parent=parent, offset=offset))
    end = stop
    for at in sorted(grown.leaving):
        for child in grown.leaving[at]:
            end = _place(child, index, at, paths)
    paths[index] = Path(start=start, stop=stop, end=end, parent=parent, offset=offset)
    return end


def random_tree(seed: int, *, max_length: int = 12, max_depth: int = 3, num_roots: int | None = None) -> list[Path]:
    """Several roots, branches of branches, several at one token, at several tokens, and paths of a single token."""
    rng = random.Random(seed)

    def grow(depth: int) -> Grown:
        grown = Grown(rng.choice((1, rng.randint(1, max_length))))
        for _ in range(rng.choice((0, 1, 2)) if depth < max_depth else 0):
            at = rng.randint(1, grown.length)
            grown.leaving[at] = [grow(depth + 1) for _ in range(rng.randint(1, 3))]
        return grown

    return laid_out(*(grow(0) for _ in range(num_roots or rng.randint(1, 3))))


def size(paths: Sequence[Path]) -> int:
    return max(path.end for path in paths)


def visible(paths: Sequence[Path]) -> Tensor:
    """[T, T], whether a row's token sees a column's: the definition, token by token."""
    seen = torch.zeros(size(paths), size(paths), dtype=torch.bool)
    for path in paths:
        for row in range(path.start, path.stop):
            seen[row, path.start : row + 1] = True
            below = path
            while below.parent is not None:
                above = paths[below.parent]
                seen[row, above.start : above.start + below.offset] = True
                below = above
    return seen


def dense(q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor, seen_TT: Tensor) -> Tensor:
    """Masked softmax over all keys, [T, N·D]."""
    group = q_TND.shape[1] // k_TKD.shape[1]
    k, v = k_TKD.repeat_interleave(group, 1), v_TKD.repeat_interleave(group, 1)
    scores = torch.einsum("qnd,knd->nqk", q_TND, k) / math.sqrt(q_TND.shape[2])
    weights = scores.masked_fill(~seen_TT, -math.inf).softmax(-1)
    return torch.einsum("nqk,knd->qnd", weights, v).reshape(len(q_TND), -1)


def random_heads(
    num_tokens: int,
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 8,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as a network makes them: queries and keys of one tensor, values of another."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    q, k = normal(num_tokens, num_heads + num_kv_heads, head_dim).split((num_heads, num_kv_heads), 1)
    v = normal(num_tokens, num_heads + 2 * num_kv_heads, head_dim)[:, -num_kv_heads:]
    return q.detach().requires_grad_(), k.detach().requires_grad_(), v.detach().requires_grad_()


class PlainShort:
    """`Kernels.short` from the formulas: causal parts one behind the other, with more keys than queries or not."""

    def __init__(self, num_queries: Sequence[int], num_keys: Sequence[int]) -> None:
        self._lengths = (list(num_queries), list(num_keys))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        scores = self._scores(q, k, causal)
        weights = scores.softmax(-1)
        return torch.einsum("nqk,knd->qnd", weights, v), scores.logsumexp(-1).t()

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights = (self._scores(q, k, causal) - lse.t().unsqueeze(-1)).exp()
        dweights = torch.einsum("qnd,knd->nqk", dout, v)
        dscores = weights * (dweights - (dout * out).sum(-1).t().unsqueeze(-1)) / math.sqrt(q.shape[2])
        dq, dk = torch.einsum("nqk,knd->qnd", dscores, k), torch.einsum("nqk,qnd->knd", dscores, q)
        return dq, dk, torch.einsum("nqk,qnd->knd", weights, dout)

    def _scores(self, q: Tensor, k: Tensor, causal: bool) -> Tensor:
        assert causal
        parts = zip(*self._lengths, strict=True)
        seen = torch.block_diag(*(torch.ones(queries, keys).tril(keys - queries) for queries, keys in parts))
        scores = torch.einsum("qnd,knd->nqk", q, k) / math.sqrt(q.shape[2])
        return scores.masked_fill(seen == 0, -math.inf)

"""One part of attention on one device: queries, keys and values -> output and log-sum-exp, and back.

Merged with other parts, a part's backward pass is the stock one of its kernel, given the output and log-sum-exp of the
whole: the weights exp(s − lse) are then those of the whole softmax (as in ring attention,
https://arxiv.org/abs/2310.01889). So each kernel is used through the operators below autograd. Knows no tree.

`choose` says which fits:
    CpuKernel        float64, float32, bfloat16 on a CPU
    CudnnKernel      bfloat16, float16 on a GPU that cuDNN serves: long parts, `Bucketed`
    FlashKernel      beside it, for all short triangles at once
    EfficientKernel  float32 on a GPU, and GPUs that cuDNN does not serve

Axes: Q queries, S keys, N query heads, K key/value heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten

# cuDNN compiles a plan for every new shape: 150 ms forward and backward on an H200, against 1 ms for the work of one
# block. In a living trainer no two steps have the same lengths; of whole buckets there are soon all.
TRIANGLE_BUCKET = 1024
"""Rows of a causal part; those that fill it up cost 5 % of a triangle of 20,000."""
QUERY_BUCKET = 256
"""Rows of a block: two tiles of a GPU's multiprocessor."""
KEY_BUCKET = 1024
"""Keys of a block. They cannot be filled up without a mask, so the rest is given to the triangles."""
MIN_ROWS = 2048
"""Causal parts from here on go to cuDNN: filled up they are at first 1.6 times the work, at 1.9 times the speed."""
LSE_MULTIPLE = 32
"""Rows in which the memory-efficient kernel aligns its log-sum-exp."""

Gradients = tuple[Tensor, Tensor, Tensor]


class Kernel(Protocol):
    """Softmax attention of [Q, N, D] over [S, K, D] at the scale 1/√D, and its gradient.

    The last query of a causal part sees all keys, and each one before it one less. Not every kernel takes more keys
    than queries there.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        """The output [Q, N, D] and the log-sum-exp [Q, N], in float32 or wider."""
        ...

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> Gradients:
        """Of queries, keys and values, from what `forward` gave or what that was merged into."""
        ...


class CpuKernel:
    """torch's flash attention for CPUs."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        op = aten._scaled_dot_product_flash_attention_for_cpu
        out, lse_NQ = op(_heads(q), _heads(k), _heads(v), 0.0, causal)
        return _rows(out), lse_NQ[0].t()

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> Gradients:
        op = aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq, dk, dv = op(*map(_heads, (dout, q, k, v, out)), lse.t()[None], 0.0, causal)
        return _rows(dq), _rows(dk), _rows(dv)


class EfficientKernel:
    """torch's memory-efficient attention: any NVIDIA GPU, float32 too."""

    def __init__(self, device: torch.device) -> None:
        # Where a dropout began: asked for, and without dropout never read.
        self._seed = torch.zeros((), dtype=torch.int64, device=device)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        op = aten._scaled_dot_product_efficient_attention
        out, lse_NQ, *_ = op(_heads(q), _heads(k), _heads(v), None, True, 0.0, causal)
        return _rows(out), lse_NQ[0, :, : len(q)].t()

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> Gradients:
        op = aten._scaled_dot_product_efficient_attention_backward
        # Rows behind the last one are infinite, as the forward kernel leaves them: their weights are zero.
        lse_NQ = functional.pad(lse.t(), (0, -len(q) % LSE_MULTIPLE), value=float("inf")).contiguous()
        tensors = (*map(_heads, (dout, q, k, v)), None, _heads(out), lse_NQ[None])
        dq, dk, dv, _ = op(*tensors, self._seed, self._seed, 0.0, [True, True, True, False], causal)
        return _rows(dq), _rows(dk), _rows(dv)


class CudnnKernel:
    """cuDNN's attention: the fastest on a large part, once it has a plan for that shape."""

    def __init__(self) -> None:
        self._of_forward: tuple[tuple[int, ...], Tensor, Tensor] | None = None
        """What the backward operator wants of a forward one: a shape, and seeds that are not read without dropout."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        op = aten._scaled_dot_product_cudnn_attention
        out, lse_NQ, *_, seed, offset, _ = op(_heads(q), _heads(k), _heads(v), None, True, 0.0, causal, False)
        self._of_forward = (tuple(lse_NQ.shape[3:]), seed, offset)
        return _rows(out), lse_NQ.view(q.shape[1], len(q)).t()

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> Gradients:
        assert self._of_forward is not None, "a backward pass before any forward pass"
        tail, *seeds = self._of_forward
        lse_NQ = lse.t().contiguous().view(1, q.shape[1], len(q), *tail)
        op = aten._scaled_dot_product_cudnn_attention_backward
        tensors = (*map(_heads, (dout, q, k, v, out)), lse_NQ, *seeds, None, None, None)
        dq, dk, dv = op(*tensors, len(q), len(k), 0.0, causal)
        return _rows(dq), _rows(dk), _rows(dv)


class Bucketed:
    """Another kernel, that sees few shapes, and causal parts only with as many queries as keys.

    A causal part is filled up with rows of zeros: in front, queries for the keys that are more than the queries, and
    behind, both. Nothing that counts sees a row behind it. A block gets queries of zeros alone. Queries without an
    output gradient give no gradient to any key.
    """

    def __init__(
        self, kernel: Kernel, *, triangle_bucket: int = TRIANGLE_BUCKET, query_bucket: int = QUERY_BUCKET
    ) -> None:
        self._kernel = kernel
        self._triangle_bucket = triangle_bucket
        self._query_bucket = query_bucket

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        rows, num = self._place(q, k, causal)
        if causal:
            k, v = _filled(k, 0, num), _filled(v, 0, num)
        out, lse = self._kernel.forward(_filled(q, rows.start, num), k, v, causal=causal)
        return out[rows], lse[rows]

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> Gradients:
        rows, num = self._place(q, k, causal)
        num_keys = len(k)
        if causal:
            k, v = _filled(k, 0, num), _filled(v, 0, num)
        dout, q, out, lse = (_filled(x, rows.start, num) for x in (dout, q, out, lse))
        dq, dk, dv = self._kernel.backward(dout, q, k, v, out, lse, causal=causal)
        return dq[rows], dk[:num_keys], dv[:num_keys]

    def _place(self, q: Tensor, k: Tensor, causal: bool) -> tuple[slice, int]:
        """Where among how many rows the queries come to lie."""
        if causal:
            return slice(len(k) - len(q), len(k)), _up(len(k), self._triangle_bucket)
        return slice(0, len(q)), _up(len(q), self._query_bucket)


class FlashKernel:
    """FlashAttention-2 over causal parts that lie one behind the other: one launch for all, and any lengths.

    Half as fast as cuDNN where that has a plan, but of 48 short parts a layer cuDNN's launches cost more than the work.
    A part may have more keys than queries: its mask is aligned at the last ones.
    """

    def __init__(self, num_queries: Sequence[int], num_keys: Sequence[int], *, device: torch.device) -> None:
        self._ends = tuple(
            torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32, device=device)
            for lengths in (num_queries, num_keys)
        )
        # At one query for each part the operator regroups the heads, and orders their log-sum-exp differently.
        self._longest = (max(2, *num_queries), max(num_keys))
        self._seeds: tuple[Tensor, Tensor] | None = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        op = aten._flash_attention_forward
        out, lse_NQ, *seeds, _ = op(q, k, v, *self._ends, *self._longest, 0.0, causal, False)
        self._seeds = (seeds[0], seeds[1])
        return out, lse_NQ.t()

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> Gradients:
        assert self._seeds is not None, "a backward pass before any forward pass"
        op = aten._flash_attention_backward
        lse_NQ = lse.t().contiguous()
        dq, dk, dv = op(dout, q, k, v, out, lse_NQ, *self._ends, *self._longest, 0.0, causal, *self._seeds)
        return dq, dk, dv


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What serves a device."""

    long: Kernel
    """For blocks, and for causal parts of at least `min_rows`."""
    short: Callable[[Sequence[int], Sequence[int]], Kernel] | None = None
    """Made for the queries and the keys of the shorter causal parts, which it computes together."""
    min_rows: int = 0
    key_bucket: int = 1
    """Blocks have a multiple of it; causal parts take what is left over in front of their own keys."""
    groups_heads: bool
    """Whether there may be fewer key than query heads."""

    def __post_init__(self) -> None:
        assert self.short is not None or not self.min_rows, "nothing computes the short parts"


def choose(device: torch.device, dtype: torch.dtype, head_dim: int) -> Kernels:
    """The fastest for tensors of this kind."""
    if device.type != "cuda":
        return Kernels(long=CpuKernel(), groups_heads=False)
    if dtype not in (torch.bfloat16, torch.float16) or not _cudnn_serves(device, dtype, head_dim):
        return Kernels(long=EfficientKernel(device), groups_heads=False)
    return Kernels(
        long=Bucketed(CudnnKernel()),
        short=partial(FlashKernel, device=device),
        min_rows=MIN_ROWS,
        key_bucket=KEY_BUCKET,
        groups_heads=True,
    )


def _cudnn_serves(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether cuDNN attention and FlashAttention-2 run there, forward and backward."""
    q, k = (
        torch.empty(1, num_heads, QUERY_BUCKET, head_dim, dtype=dtype, device=device, requires_grad=True)
        for num_heads in (2, 1)
    )
    asked = torch.backends.cuda.SDPAParams(q, k, k, None, 0.0, True, True)
    return torch.backends.cuda.can_use_cudnn_attention(asked) and torch.backends.cuda.can_use_flash_attention(asked)


def _up(num: int, bucket: int) -> int:
    return -(-num // bucket) * bucket


def _filled(x: Tensor, front: int, num: int) -> Tensor:
    """The rows of x behind `front` rows of zeros, and as many behind as make up `num`."""
    if len(x) == num:
        return x
    filled = x.new_zeros(num, *x.shape[1:])
    filled[front : front + len(x)] = x
    return filled


def _heads(x_TND: Tensor) -> Tensor:
    """[T, N, D] as the operators want it, [1, N, T, D]; nothing is copied."""
    return x_TND.transpose(0, 1).unsqueeze(0)


def _rows(x_NTD: Tensor) -> Tensor:
    return x_NTD.squeeze(0).transpose(0, 1)

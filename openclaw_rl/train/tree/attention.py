"""`network.Attend` over a tree of tokens: every part on its own kernel, merged by log-sum-exp, forward and backward.

A row's triangle and its blocks are softmaxes over disjoint keys. With out_i and lse_i of each, the whole is
lse = log Σ exp lse_i and out = Σ exp(lse_i − lse) · out_i. Backwards each part's kernel is given the whole's out and
lse, and gradients of rows that are in several parts add up. Knows no model, and of a kernel only its protocol.

Axes: T tokens, N query heads, K key/value heads, D head dim, Q queries of one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from openclaw_rl.train.tree.fold import Path
from openclaw_rl.train.tree.kernels import Gradients, Kernel, Kernels, choose
from openclaw_rl.train.tree.parts import Triangle, parts_of


class TreeAttention:
    """Attention in which a token sees itself and what leads to it. Of one batch; any number of layers and passes."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        device: torch.device,
        dtype: torch.dtype,
        head_dim: int = 128,
        kernels: Kernels | None = None,
    ) -> None:
        """Without `kernels` those that are the fastest for the other three."""
        self._plan = _Plan(paths, kernels or choose(device, dtype, head_dim), device)

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        out_TND: Tensor = _Attention.apply(q_TND, k_TKD, v_TKD, self._plan)  # type: ignore[no-untyped-call]
        return out_TND.reshape(len(q_TND), -1)

    @torch.no_grad()
    def behind(
        self, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor, rows: range, past_k: Tensor, past_v: Tensor
    ) -> Tensor:
        """The same where `rows` also see all of a past that is no part of the batch. Without gradient."""
        return self._plan.forward_behind(q_TND, k_TKD, v_TKD, rows, past_k, past_v).reshape(len(q_TND), -1)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        out, lse = plan.forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.plan = plan
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        return (*ctx.plan.backward(dout.contiguous(), *ctx.saved_tensors), None)


class _Rows:
    """Rows of a batch: a slice where they lie in one piece, else an index."""

    __slots__ = ("_index", "_slice")

    def __init__(self, ranges: Iterable[range], device: torch.device) -> None:
        joined: list[range] = []
        for rows in ranges:
            if joined and joined[-1].stop == rows.start:
                joined[-1] = range(joined[-1].start, rows.stop)
            else:
                joined.append(rows)
        self._slice, self._index = slice(joined[0].start, joined[0].stop), None
        if len(joined) > 1:
            self._index = torch.cat([torch.arange(rows.start, rows.stop) for rows in joined]).to(device)

    def take(self, x: Tensor) -> Tensor:
        return x[self._slice] if self._index is None else x.index_select(0, self._index)

    def put(self, x: Tensor, rows: Tensor) -> None:
        if self._index is None:
            x[self._slice] = rows
        else:
            x.index_copy_(0, self._index, rows.to(x.dtype))

    def add(self, x: Tensor, rows: Tensor) -> None:
        if self._index is None:
            x[self._slice].add_(rows)
        else:
            x.index_add_(0, self._index, rows.to(x.dtype))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Some queries over some keys."""

    queries: _Rows
    keys: _Rows
    causal: bool
    kernel: Kernel

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.kernel.forward(self.queries.take(q), self.keys.take(k), self.keys.take(v), causal=self.causal)

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> Gradients:
        dout, q, out, lse = (self.queries.take(x) for x in (dout, q, out, lse))
        k, v = self.keys.take(k), self.keys.take(v)
        return self.kernel.backward(dout, q, k, v, out, lse, causal=self.causal)


class _Plan:
    """The parts of one tree on one device."""

    def __init__(self, paths: Sequence[Path], kernels: Kernels, device: torch.device) -> None:
        parts = parts_of(paths, key_bucket=kernels.key_bucket)
        self._kernels = kernels
        self._groups_heads = kernels.groups_heads
        self._most = parts.most
        self._shares_keys = bool(parts.blocks) or any(one.before for one in parts.triangles)
        short = [one for one in parts.triangles if len(one.rows) < kernels.min_rows]
        long = [one for one in parts.triangles if len(one.rows) >= kernels.min_rows]
        self._triangles = [_causal([one], kernels.long, device) for one in long]
        if short and kernels.short is not None:
            together = kernels.short([len(one.rows) for one in short], [one.num_keys for one in short])
            self._triangles.append(_causal(short, together, device))
        self._blocks = [
            _Part(
                queries=_Rows([block.queries], device),
                keys=_Rows([block.keys], device),
                causal=False,
                kernel=kernels.long,
            )
            for block in parts.blocks
        ]

    @property
    def _is_whole(self) -> bool:
        """One part has all rows, in their order: what its kernel gives is the result."""
        return len(self._triangles) == 1 and not self._shares_keys

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output [T, N, D] and the log-sum-exp [T, N]."""
        k, v = self._spread(k, q), self._spread(v, q)
        if self._is_whole:
            return self._triangles[0].forward(q, k, v)
        out_TND, lse_TN = self._empty_sum(q), q.new_empty(q.shape[:2], dtype=_wide(q))
        for part in self._triangles:
            out, lse = part.forward(q, k, v)
            part.queries.put(out_TND, out)
            part.queries.put(lse_TN, lse)
        for part in self._blocks:
            # Block by block: 1,000 rows of 32 heads stay in a GPU's cache between the operations of `_merge`.
            _merge(part.queries.take(out_TND), part.queries.take(lse_TN), *part.forward(q, k, v))
        return out_TND.to(q.dtype), lse_TN

    def forward_behind(self, q: Tensor, k: Tensor, v: Tensor, rows: range, past_k: Tensor, past_v: Tensor) -> Tensor:
        out_TND, lse_TN = self.forward(q, k, v)
        seeing = slice(rows.start, rows.stop)
        past_k, past_v = self._spread(past_k, q), self._spread(past_v, q)
        for kernel, keys in self._over(len(past_k), num_queries=len(rows)):
            found = kernel.forward(q[seeing], past_k[keys], past_v[keys], causal=False)
            _merge(out_TND[seeing], lse_TN[seeing], *found)
        return out_TND

    def _over(self, num_keys: int, *, num_queries: int) -> Iterator[tuple[Kernel, slice]]:
        """Kernels for all of so many keys: whole buckets, and what is left over."""
        kernels = self._kernels
        whole = num_keys // kernels.key_bucket * kernels.key_bucket
        if whole:
            yield kernels.long, slice(0, whole)
        if whole < num_keys:
            assert kernels.short is not None, "where keys come in buckets there is a kernel for the rest"
            yield kernels.short([num_queries], [num_keys - whole]), slice(whole, num_keys)

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> Gradients:
        all_k, all_v = self._spread(k, q), self._spread(v, q)
        if self._is_whole:
            dq, dk, dv = self._triangles[0].backward(dout, q, all_k, all_v, out, lse)
            return dq, self._gather(dk, k), self._gather(dv, v)
        dq_TND = self._empty_sum(q)
        dk_TKD, dv_TKD = (
            x.new_zeros(x.shape, dtype=_wide(x) if self._shares_keys else x.dtype) for x in (all_k, all_v)
        )
        for part in self._triangles:
            dq, dk, dv = part.backward(dout, q, all_k, all_v, out, lse)
            part.queries.put(dq_TND, dq)
            part.keys.add(dk_TKD, dk)
            part.keys.add(dv_TKD, dv)
        for part in self._blocks:
            dq, dk, dv = part.backward(dout, q, all_k, all_v, out, lse)
            part.queries.add(dq_TND, dq)
            part.keys.add(dk_TKD, dk)
            part.keys.add(dv_TKD, dv)
        return dq_TND.to(q.dtype), self._gather(dk_TKD, k), self._gather(dv_TKD, v)

    def _empty_sum(self, q: Tensor) -> Tensor:
        """For what the parts of each query add up to: of two it is rounded once in any case, of more at each step."""
        return q.new_empty(q.shape, dtype=_wide(q) if self._most > 2 else q.dtype)

    def _spread(self, x_TKD: Tensor, q_TND: Tensor) -> Tensor:
        """With a key head for every query head, if the kernel wants that: once for all parts."""
        group = q_TND.shape[1] // x_TKD.shape[1]
        return x_TKD if self._groups_heads or group == 1 else x_TKD.repeat_interleave(group, 1)

    @staticmethod
    def _gather(dx: Tensor, x_TKD: Tensor) -> Tensor:
        """The gradient of what was spread."""
        if dx.shape == x_TKD.shape:
            return dx.to(x_TKD.dtype)
        return dx.view(*x_TKD.shape[:2], -1, x_TKD.shape[2]).sum(2).to(x_TKD.dtype)


def _causal(triangles: Sequence[Triangle], kernel: Kernel, device: torch.device) -> _Part:
    return _Part(
        queries=_Rows([one.rows for one in triangles], device),
        keys=_Rows([rows for one in triangles for rows in (*one.before, one.rows)], device),
        causal=True,
        kernel=kernel,
    )


def _merge(out_QND: Tensor, lse_QN: Tensor, other_QND: Tensor, other_lse_QN: Tensor) -> None:
    """Another part's output and log-sum-exp come into the first ones."""
    lse = torch.logaddexp(lse_QN, other_lse_QN)
    share, other_share = ((one - lse).exp().unsqueeze(-1) for one in (lse_QN, other_lse_QN))
    out_QND.copy_(torch.addcmul(out_QND * share, other_QND, other_share))
    lse_QN.copy_(lse)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)

"""The work of a layer between its products: norms, turning queries and keys, the gate of the MLP.

Two makes of the same four functions. `PLAIN` is torch's own operations, few of them: what a CPU at one token likes, and
any device without a compiler. `fused` is for a GPU and thousands of tokens, where these functions do nothing but move
memory: each becomes one kernel forward and one backward, compiled once per process for any number of tokens. Knows no
weights' names, no adapter and no attention.

Axes: T tokens, H hidden, F the MLP's inner size, N query heads, K key/value heads, D head dim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """One make of the four; `_norm`, `_add_norm`, `_turn` and `_gate` name the arguments."""

    norm: Callable[[Tensor, Tensor, float], Tensor]
    """The RMS norm of x [T, H]."""
    add_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    """x + y, and its RMS norm."""
    turn: Callable[
        [Tensor, Tensor, Tensor, Tensor | None, Tensor | None, int, int, float], tuple[Tensor, Tensor, Tensor]
    ]
    """Queries [T, N, D], keys and values [T, K, D] out of their projection: normed where there are norms, then turned.
    `cos` and the signed `sin` are [T, 1, D]: a turn is h·cos + (swapped halves of h)·sin."""
    gate: Callable[[Tensor], Tensor]
    """silu(gate)·up [T, F] of [T, 2·F]."""


def _norm(x_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    return torch.rms_norm(x_TH, weight_H.shape, weight_H, eps)


def _add_norm(x_TH: Tensor, y_TH: Tensor, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    x_TH = x_TH + y_TH
    return x_TH, torch.rms_norm(x_TH, weight_H.shape, weight_H, eps)


def _turn(
    qkv_T: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    # With `split` for `split_with_sizes` a layer at T = 1 would take a CPU 10 µs more, with queries and keys turned
    # apart from each other 6; all that is no product takes 40.
    head_dim = cos.shape[-1]
    heads = qkv_T.view(-1, num_heads + 2 * num_kv_heads, head_dim)
    qk, v = heads.split_with_sizes((num_heads + num_kv_heads, num_kv_heads), 1)
    if q_norm_D is not None and k_norm_D is not None:
        q, k = qk.split_with_sizes((num_heads, num_kv_heads), 1)
        q = torch.rms_norm(q, q_norm_D.shape, q_norm_D, eps)
        k = torch.rms_norm(k, k_norm_D.shape, k_norm_D, eps)
        qk = torch.cat((q, k), dim=1)
    qk = torch.addcmul(qk * cos, qk.roll(head_dim // 2, -1), sin)
    q, k = qk.split_with_sizes((num_heads, num_kv_heads), 1)
    return q, k, v


def _gate(gate_up: Tensor) -> Tensor:
    size = gate_up.shape[1] // 2
    gate, up = gate_up.split_with_sizes((size, size), 1)
    return functional.silu(gate) * up


PLAIN = Elementwise(norm=_norm, add_norm=_add_norm, turn=_turn, gate=_gate)


def _norm_of(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32 throughout: inside one kernel that costs nothing."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()


def _norm_once(x_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    return _norm_of(x_TH, weight_H, eps).to(x_TH.dtype)


def _add_norm_once(x_TH: Tensor, y_TH: Tensor, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    x_TH = x_TH + y_TH
    return x_TH, _norm_of(x_TH, weight_H, eps).to(x_TH.dtype)


def _turn_once(
    qkv_T: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    half = cos.shape[-1] // 2

    def turned(h: Tensor, weight_D: Tensor | None) -> Tensor:
        wide = h.float() if weight_D is None else _norm_of(h, weight_D, eps)
        return (wide * cos + wide.roll(half, -1) * sin).to(h.dtype)

    heads = qkv_T.view(-1, num_heads + 2 * num_kv_heads, 2 * half)
    q, k, v = heads.split_with_sizes((num_heads, num_kv_heads, num_kv_heads), 1)
    # The copy lets go of the projection's output, six times its size, and gives its gradient in one piece.
    return turned(q, q_norm_D), turned(k, k_norm_D), v.clone(memory_format=torch.contiguous_format)


def _gate_once(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, 1)
    return (functional.silu(gate.float()) * up.float()).to(gate_up.dtype)


def fuse(backend: str) -> Elementwise:
    """The four, each compiled as a whole. Shapes are constants of the kernels, all but the number of tokens."""
    # With and without gradient, one token or many, a model or its teacher: eight makes of a function are soon passed.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return Elementwise(
        norm=_compiled(_norm_once, 1, backend),
        add_norm=_compiled(_add_norm_once, 2, backend),
        turn=_compiled(_turn_once, 3, backend),
        gate=_compiled(_gate_once, 1, backend),
    )


def _compiled(function: Callable[..., Any], num_long: int, backend: str) -> Callable[..., Any]:
    """`function`, whose first `num_long` arguments have a row for each token."""
    compiled = torch.compile(function, backend=backend, dynamic=False, fullgraph=True)

    def call(*args: Any) -> Any:
        for tensor in args[:num_long]:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return compiled(*args)

    return call


@cache
def fused() -> Elementwise:
    """For tensors on a GPU: compiled, or plain, with one warning, where nothing can be compiled."""
    try:
        x = torch.ones(2, 4, device="cuda", requires_grad=True)
        torch.compile(_gate_once)(x).sum().backward()
    except Exception as error:  # a compiler, triton or a driver may be missing, and each says so in its own way
        _log.warning("element-wise kernels are not fused, so training is slower: %s", str(error).partition("\n")[0])
        return PLAIN
    return fuse("inductor")

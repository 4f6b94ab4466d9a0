"""An adapter that learns, added to the projections of all tokens of a pass: one node of autograd for each projection.

The node keeps the projection's input and the input times A, and passes the output's gradient on untouched. Written as
separate operations on slices of the output, autograd would copy the whole gradient once for every slice. Knows no
optimiser and no file; `model/adapter.py` adds adapters where nothing learns.

Axes: T tokens, R rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from openclaw_rl.model.adapter import AdapterWeights, LoraParts
from openclaw_rl.model.architecture import MODULES, Module
from openclaw_rl.model.network import Lora


class LearnedLora:
    """A `network.Lora` of one adapter for every row; its matrices may be views of a tensor that learns."""

    def __init__(self, adapter: AdapterWeights) -> None:
        self._adapter = adapter

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        parts = self._adapter.parts(layer, module)
        if parts is None:
            return y
        bs = [part.b for part in parts.parts]
        added: Tensor = _Add.apply(y, x, parts, parts.a, *bs)  # type: ignore[no-untyped-call]
        return added


class _Add(Function):
    """y[:, part.out] += scale · (x·Aᵀ)[:, part.rank] · part.bᵀ, in place."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, parts: LoraParts, a: Tensor, *bs: Tensor) -> Tensor:
        reduced_TR = functional.linear(x, a)
        for part, b in zip(parts.parts, bs, strict=True):
            y[:, part.out].addmm_(reduced_TR[:, part.rank], b.t(), alpha=parts.scale)
        ctx.parts = parts
        ctx.save_for_backward(x, reduced_TR, a, *bs)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, reduced_TR, a, *bs = ctx.saved_tensors
        scale = ctx.parts.scale
        d_reduced_TR = torch.empty_like(reduced_TR)
        d_bs: list[Tensor | None] = []
        for part, b, learns in zip(ctx.parts.parts, bs, ctx.needs_input_grad[4:], strict=True):
            dy_part = dy[:, part.out]
            torch.mm(dy_part, b, out=d_reduced_TR[:, part.rank])
            # The transpose of B is what lies in memory.
            d_bs.append((reduced_TR[:, part.rank].t() @ dy_part).mul_(scale).t() if learns else None)
        d_reduced_TR.mul_(scale)
        d_x = d_reduced_TR @ a if ctx.needs_input_grad[1] else None
        d_a = d_reduced_TR.t() @ x if ctx.needs_input_grad[3] else None
        return dy, d_x, None, d_a, *d_bs


class DroppedLora:
    """Dropout in front of an adapter. The same seed drops the same numbers, so that a layer can be computed twice."""

    def __init__(self, inner: Lora, share: float, seed: int) -> None:
        self._inner = inner
        self._share = share
        self._seed = seed

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        place = layer * 8 + tuple(MODULES).index(module)
        generator = torch.Generator(x.device).manual_seed((self._seed * 1_000_003 + place) % (1 << 63))
        kept = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float32) >= self._share
        return self._inner.add(layer, module, x * kept.to(x.dtype) / (1 - self._share), y)

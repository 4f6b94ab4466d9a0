"""Random heads and hidden states, and the obvious answer to every question about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.train.head.chunks import Chunks, wide
from openclaw_rl.train.head.rows import FusedRows, HeadWeights
from openclaw_rl.train.objective.rows import DenseRows, Rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Leaves that want a gradient, and rows over them both ways."""

    hidden: Tensor
    """[R, H]"""
    head: HeadWeights
    temperature: float

    @property
    def leaves(self) -> list[Tensor]:
        return [leaf for leaf in (self.hidden, self.head.weight, self.head.bias) if leaf is not None]

    def dense(self) -> DenseRows:
        """In the wide dtype from the first product on."""
        dtype = wide(self.hidden.dtype)
        logits_RV = self.hidden.to(dtype) @ self.head.weight.to(dtype).T
        if self.head.bias is not None:
            logits_RV = logits_RV + self.head.bias.to(dtype)
        if self.head.softcap is not None:
            logits_RV = self.head.softcap * torch.tanh(logits_RV / self.head.softcap)
        return DenseRows(logits_RV, self.temperature)

    def fused(self, chunks: Chunks | None = None) -> FusedRows:
        return FusedRows(self.hidden, self.head, self.temperature, chunks=chunks)

    def ids(self, num_asked: int, seed: int = 0) -> Tensor:
        """Random tokens, with the last one asked for twice."""
        generator = torch.Generator().manual_seed(seed)
        shape = (len(self.hidden), num_asked)
        ids_RJ = torch.randint(len(self.head.weight), shape, generator=generator)
        return torch.cat((ids_RJ, ids_RJ[:, -1:]), dim=-1).to(self.hidden.device)


def make_case(
    num_rows: int = 9,
    num_dims: int = 12,
    num_tokens: int = 31,
    *,
    seed: int = 0,
    bias: bool = False,
    softcap: float | None = None,
    temperature: float = 1.0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        drawn = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn.to(device=device, dtype=dtype).requires_grad_()

    return Case(
        hidden=normal(num_rows, num_dims),
        head=HeadWeights(
            weight=normal(num_tokens, num_dims, scale=3 / num_dims**0.5),
            bias=normal(num_tokens) if bias else None,
            softcap=softcap,
        ),
        temperature=temperature,
    )


def answers(case: Case, rows: Rows, ask: Callable[[Rows], Tensor], seed: int = 1) -> tuple[Tensor, Sequence[Tensor]]:
    """What was answered, and the gradients of all leaves for a random direction."""
    found = ask(rows)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return found.detach(), torch.autograd.grad(found, case.leaves, direction.to(found))

"""One chunk of a head's products becomes statistics of its rows, or the gradient of those products.

A product is hidden · weight; `Curve` makes the logits of a row's softmax of it. `Chunks` is the seam between this file,
plain torch for any device, and `kernels.py`. Knows no loop over chunks and no autograd: `rows.py` has both.

Axes: C rows of a chunk, R rows, H hidden, V vocabulary or a slab of it, K top-k width, J tokens asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

LOWEST_BIAS = -1e30
"""For −inf, which forbids a token: its probability is 0 either way, and 0 · log 0 stays a number."""

_PAIR_ELEMENTS = 1 << 21
"""Of the rows of the weights that `dots` gathers at once: 8 MiB in float32."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """logit = cap · tanh((product + bias) / cap) / temperature; without a cap (product + bias) / temperature."""

    bias: Tensor | None
    """[V], as wide as the products, nowhere below `LOWEST_BIAS`."""
    softcap: float | None
    temperature: float

    def slab(self, first: int, stop: int) -> Curve:
        """For the products of tokens `first` to `stop`."""
        return self if self.bias is None else replace(self, bias=self.bias[first:stop])

    def at(self, products_RJ: Tensor, ids_RJ: Tensor) -> Tensor:
        """The logits of given tokens, over their products."""
        if self.bias is not None:
            products_RJ += self.bias[ids_RJ]
        return self._bend(products_RJ)

    def logits(self, products_CV: Tensor) -> Tensor:
        """Over the products."""
        if self.bias is not None:
            products_CV += self.bias
        return self._bend(products_CV)

    def _bend(self, products: Tensor) -> Tensor:
        if self.softcap is not None:
            products.div_(self.softcap).tanh_().mul_(self.softcap)
        return products if self.temperature == 1 else products.div_(self.temperature)

    def slope(self, logits_CV: Tensor) -> Tensor | float:
        """d logit / d product."""
        if self.softcap is None:
            return 1 / self.temperature
        share_CV = logits_CV * (self.temperature / self.softcap)
        return share_CV.square_().neg_().add_(1).div_(self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pull:
    """The gradient of a loss by the logits z of rows: p · (level + tilt · log p) of all tokens, where log p = z − lse,
    and what is `at` the tokens `ids`."""

    lse: Tensor
    """[R]"""
    level: Tensor
    """[R]"""
    tilt: Tensor | None = None
    """[R]"""
    ids: Tensor | None = None
    """[R, J]; a token may be there twice."""
    at: Tensor | None = None
    """[R, J]"""

    def rows(self, start: int, stop: int) -> Pull:
        def part(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[start:stop]

        return Pull(
            lse=self.lse[start:stop],
            level=self.level[start:stop],
            tilt=part(self.tilt),
            ids=part(self.ids),
            at=part(self.at),
        )


class Chunks(Protocol):
    """Products are float32 or float64 and may be overwritten by whoever gets them."""

    @property
    def max_rows(self) -> int:
        """Of a chunk."""
        ...

    @property
    def max_bytes(self) -> int:
        """Of a chunk's products and their gradient."""
        ...

    def stats(self, products_CV: Tensor, curve: Curve, k: int) -> tuple[Tensor, Tensor]:
        """Log-sum-exp [C] and the ids [C, K] of the largest logits, the largest first; k may be 0."""
        ...

    def entropy(self, products_CV: Tensor, curve: Curve, lse_C: Tensor) -> Tensor:
        """−Σ p · log p of each row, [C]."""
        ...

    def gradient(self, products_CV: Tensor, curve: Curve, pull: Pull, *, first: int, out_CV: Tensor) -> None:
        """Writes what is pulled at the products of the tokens from `first` on. `out_CV` may be the products."""
        ...

    def dots(self, hidden_RH: Tensor, weight_VH: Tensor, ids_RJ: Tensor) -> Tensor:
        """The products of given tokens [R, J]; each has the same bits whatever is asked beside it."""
        ...


def wide(dtype: torch.dtype) -> torch.dtype:
    """What logits of such hidden states are computed in."""
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchChunks:
    """Chunks in plain torch. The defaults are for a CPU: smaller chunks would read the weights more often."""

    max_rows: int = 512
    max_bytes: int = 128 << 20

    def stats(self, products_CV: Tensor, curve: Curve, k: int) -> tuple[Tensor, Tensor]:
        logits_CV = curve.logits(products_CV)
        ids_CK = logits_CV.topk(k, dim=-1).indices
        largest_C1 = logits_CV.amax(-1, keepdim=True)
        mass_C = logits_CV.sub_(largest_C1).exp_().sum(-1)
        return mass_C.log_().add_(largest_C1.squeeze(-1)), ids_CK

    def entropy(self, products_CV: Tensor, curve: Curve, lse_C: Tensor) -> Tensor:
        logprobs_CV = curve.logits(products_CV).sub_(lse_C.unsqueeze(-1))
        return logprobs_CV.exp().mul_(logprobs_CV).sum(-1).neg_()

    def gradient(self, products_CV: Tensor, curve: Curve, pull: Pull, *, first: int, out_CV: Tensor) -> None:
        logits_CV = curve.logits(products_CV)
        slope = curve.slope(logits_CV)
        grad_CV = logprobs_CV = logits_CV.sub_(pull.lse.unsqueeze(-1))
        if pull.tilt is None:
            grad_CV.exp_().mul_(pull.level.unsqueeze(-1))
        else:
            p_CV = logprobs_CV.exp()
            grad_CV.mul_(pull.tilt.unsqueeze(-1)).add_(pull.level.unsqueeze(-1)).mul_(p_CV)
        if pull.ids is not None and pull.at is not None:
            num_tokens = products_CV.shape[-1]
            places_CJ = pull.ids - first
            is_here_CJ = (places_CJ >= 0) & (places_CJ < num_tokens)
            grad_CV.scatter_add_(-1, places_CJ.clamp_(0, num_tokens - 1), pull.at * is_here_CJ)
        grad_CV *= slope
        if out_CV.data_ptr() != grad_CV.data_ptr():
            out_CV.copy_(grad_CV)

    def dots(self, hidden_RH: Tensor, weight_VH: Tensor, ids_RJ: Tensor) -> Tensor:
        dtype, num_asked = wide(hidden_RH.dtype), ids_RJ.shape[-1]
        ids_P, found_P = ids_RJ.reshape(-1), hidden_RH.new_empty(ids_RJ.numel(), dtype=dtype)
        for start, stop in slices(len(ids_P), max(1, _PAIR_ELEMENTS // hidden_RH.shape[-1])):
            rows_P = torch.arange(start, stop, device=ids_P.device) // num_asked
            # A product of matrices would be summed in another order for another number of tokens.
            products_PH = weight_VH[ids_P[start:stop]].to(dtype).mul_(hidden_RH[rows_P])
            torch.sum(products_PH, dim=-1, out=found_P[start:stop])
        return found_P.view(ids_RJ.shape)


def slices(length: int, step: int) -> Iterator[tuple[int, int]]:
    """Start and end of so many at a time; the last ones may be fewer."""
    for start in range(0, length, step):
        yield start, min(start + step, length)

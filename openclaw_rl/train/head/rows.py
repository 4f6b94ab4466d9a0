"""Hidden states and a head's weights become what the loss asks about a response, without a [R, V] tensor.

The first question makes one pass over chunks of rows, without gradient, that leaves each row's log-sum-exp and, where
`top_k` asked, its best tokens. The log-prob of any token is then a dot product minus that number: no second pass. Its
gradient computes every chunk anew: p · level + at, in the words of `chunks.Pull`. So ask for `top_k` before `logprob`:
the other way round the logits are computed twice. Knows no network and no loss.

Axes: R rows, H hidden, V vocabulary, K top-k width, J tokens asked for; C rows and S tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from openclaw_rl.train.head.chunks import LOWEST_BIAS, Chunks, Curve, Pull, TorchChunks, slices, wide
from openclaw_rl.types.checks import require

_GPU_ROWS, _GPU_BYTES = 2048, 768 << 20
"""Below 1 GiB with the gradient of 32,768 rows of 2,560 beside it."""
_WIDE_SHARE = 1 / 4
"""Of a chunk's bytes, for the products of narrow gradients; measured on an H200, as the number of rows was."""
_MULTIPLE = 128
"""What the products of matrices on a GPU are cut into."""
_WIDENED_TOKENS = 8192
"""Of narrow weights on a CPU at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadWeights:
    """logits = hidden · weightᵀ + bias, then cap · tanh(logits / cap) where there is a cap."""

    weight: Tensor
    """[V, H]"""
    bias: Tensor | None = None
    """[V]"""
    softcap: float | None = None

    def __post_init__(self) -> None:
        require(self.weight.dim() == 2, f"the weights of a head are [V, H], got shape {tuple(self.weight.shape)}")
        if self.bias is not None:
            shape = tuple(self.bias.shape)
            require(
                shape == self.weight.shape[:1], f"{self.weight.shape[0]} tokens have a bias each, got shape {shape}"
            )
        require(self.softcap is None or self.softcap > 0, f"a softcap is larger than 0, got {self.softcap}")


class FusedRows:
    """`objective.rows.Rows` of hidden states, in chunks. Answers are float32, or float64 for such hidden states."""

    def __init__(
        self, hidden_RH: Tensor, head: HeadWeights, temperature: float = 1.0, *, chunks: Chunks | None = None
    ) -> None:
        weight_VH = head.weight
        require(
            hidden_RH.dim() == 2 and hidden_RH.shape[-1] == weight_VH.shape[-1],
            f"hidden states are [R, {weight_VH.shape[-1]}] for this head, got shape {tuple(hidden_RH.shape)}",
        )
        require(
            hidden_RH.dtype == weight_VH.dtype,
            f"hidden states and head have one dtype, got {hidden_RH.dtype} and {weight_VH.dtype}",
        )
        require(temperature > 0, f"a temperature is larger than 0, got {temperature}")
        bias_V = head.bias
        if bias_V is not None:
            bias_V = bias_V.detach().to(wide(hidden_RH.dtype)).clamp(min=LOWEST_BIAS)
        self._hidden_RH = hidden_RH
        self._head = head
        self._passes = _Passes(
            weight=weight_VH.detach(),
            curve=Curve(bias=bias_V, softcap=head.softcap, temperature=temperature),
            chunks=chunks or chunks_for(hidden_RH.device.type, hidden_RH.dtype),
        )
        self._lse_R: Tensor | None = None
        self._best_RK: Tensor | None = None

    def logprob(self, ids_RJ: Tensor) -> Tensor:
        asked = (self._hidden_RH, *self._weights, ids_RJ, self._lse(), self._passes)
        found_RJ: Tensor = _LogProb.apply(*asked)  # type: ignore[no-untyped-call]
        return found_RJ

    @torch.no_grad()
    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        num_tokens = len(self._head.weight)
        require(0 < k <= num_tokens, f"top_k is 1 to {num_tokens}, the size of the vocabulary, got {k}")
        if self._best_RK is None or self._best_RK.shape[-1] < k:
            lse_R, self._best_RK = self._passes.stats(self._hidden_RH.detach(), k)
            if self._lse_R is None:  # else what was answered before would change
                self._lse_R = lse_R
        ids_RK = self._best_RK[:, :k]
        return ids_RK, self.logprob(ids_RK)

    def entropy(self) -> Tensor:
        asked = (self._hidden_RH, *self._weights, self._lse(), self._passes)
        found_R: Tensor = _Entropy.apply(*asked)  # type: ignore[no-untyped-call]
        return found_R

    @property
    def _weights(self) -> tuple[Tensor, Tensor | None]:
        return self._head.weight, self._head.bias

    def _lse(self) -> Tensor:
        if self._lse_R is None:
            self._lse_R, _ = self._passes.stats(self._hidden_RH.detach(), 0)
        return self._lse_R


def extra_bytes(device_type: str, vocab_size: int) -> int:
    """What a head takes beside its rows at most: a chunk of logits, and its gradient."""
    return 1 << 30 if device_type == "cuda" else 2 * TorchChunks().max_rows * vocab_size * torch.float32.itemsize


@cache
def chunks_for(device_type: str, dtype: torch.dtype) -> Chunks:
    """The fastest that there is for hidden states on such a device."""
    if device_type != "cuda":
        return TorchChunks()
    if wide(dtype) == torch.float32:
        try:
            from openclaw_rl.train.head.kernels import TritonChunks
        except ImportError:
            pass  # a GPU without Triton
        else:
            return TritonChunks(max_rows=_GPU_ROWS, max_bytes=_GPU_BYTES)
    return TorchChunks(max_rows=_GPU_ROWS, max_bytes=_GPU_BYTES)


class _LogProb(torch.autograd.Function):
    """Log-probs [R, J] of given tokens; backwards it computes the logits anew, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_RH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        ids_RJ: Tensor,
        lse_R: Tensor,
        passes: _Passes,
    ) -> Tensor:
        ctx.save_for_backward(hidden_RH, weight_VH, bias_V, ids_RJ, lse_R)
        ctx.passes = passes
        logits_RJ = passes.logits_of(hidden_RH, ids_RJ)
        # Dot product and log-sum-exp are rounded apart, so that a probability of 1 could be a little more.
        return logits_RJ.sub_(lse_R.unsqueeze(-1)).clamp_(max=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_RJ: Tensor) -> tuple[Tensor | None, ...]:
        hidden_RH, _, _, ids_RJ, lse_R = ctx.saved_tensors
        pull = Pull(lse=lse_R, level=-grad_RJ.sum(-1), ids=ids_RJ, at=grad_RJ)
        return *ctx.passes.gradients(hidden_RH, pull, ctx.needs_input_grad[:3]), None, None, None


class _Entropy(torch.autograd.Function):
    """S = −Σ p · log p of each row, [R]; its gradient by the logits is −p · (S + log p)."""

    @staticmethod
    def forward(
        ctx: Any, hidden_RH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, lse_R: Tensor, passes: _Passes
    ) -> Tensor:
        entropy_R = passes.entropy(hidden_RH, lse_R)
        ctx.save_for_backward(hidden_RH, weight_VH, bias_V, lse_R, entropy_R)
        ctx.passes = passes
        return entropy_R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_R: Tensor) -> tuple[Tensor | None, ...]:
        hidden_RH, _, _, lse_R, entropy_R = ctx.saved_tensors
        pull = Pull(lse=lse_R, level=-grad_R * entropy_R, tilt=-grad_R)
        return *ctx.passes.gradients(hidden_RH, pull, ctx.needs_input_grad[:3]), None, None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Passes:
    """Chunk by chunk over all rows: statistics forwards, gradients backwards. Nothing here is differentiated."""

    weight: Tensor
    """[V, H]"""
    curve: Curve
    chunks: Chunks

    def stats(self, hidden_RH: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Log-sum-exp [R], and the ids [R, K] of the largest logits."""
        lse_R = hidden_RH.new_empty(len(hidden_RH), dtype=self._dtype)
        ids_RK = torch.empty(len(hidden_RH), k, dtype=torch.int64, device=hidden_RH.device)
        for start, stop, products_CV in self._products(hidden_RH):
            lse_R[start:stop], ids_RK[start:stop] = self.chunks.stats(products_CV, self.curve, k)
        return lse_R, ids_RK

    def entropy(self, hidden_RH: Tensor, lse_R: Tensor) -> Tensor:
        entropy_R = torch.empty_like(lse_R)
        for start, stop, products_CV in self._products(hidden_RH):
            entropy_R[start:stop] = self.chunks.entropy(products_CV, self.curve, lse_R[start:stop])
        return entropy_R

    def logits_of(self, hidden_RH: Tensor, ids_RJ: Tensor) -> Tensor:
        return self.curve.at(self.chunks.dots(hidden_RH, self.weight, ids_RJ), ids_RJ)

    def gradients(
        self, hidden_RH: Tensor, pull: Pull, needed: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of what is pulled, by the hidden states, the weights and the bias, where they are needed."""
        needs_hidden, needs_weight, needs_bias = needed
        grad_RH = torch.empty_like(hidden_RH) if needs_hidden else None
        grad_VH = torch.zeros_like(self.weight) if needs_weight else None
        grad_V = hidden_RH.new_zeros(len(self.weight), dtype=self._dtype) if needs_bias else None
        sum_CH = hidden_RH.new_empty(0)
        for start, stop, first, last, grad_CS in self._pulled(hidden_RH, pull):
            weight_SH, hidden_CH = self.weight[first:last], hidden_RH[start:stop]
            if grad_RH is not None:
                part_CH = _multiply(grad_CS, weight_SH, torch.empty_like(hidden_CH, dtype=self._dtype))
                sum_CH = part_CH if first == 0 else sum_CH.add_(part_CH)
                if last == len(self.weight):
                    grad_RH[start:stop] = sum_CH
            if grad_VH is not None:
                _add_product(grad_CS.t(), hidden_CH, grad_VH[first:last])
            if grad_V is not None:
                grad_V[first:last] += grad_CS.sum(0, dtype=self._dtype)
        return grad_RH, grad_VH, grad_V

    def _products(self, hidden_RH: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Start and end of some rows, and their products with all of the weights."""
        num_tokens = len(self.weight)
        most = self._fitting(self.chunks.max_rows, num_tokens * self._dtype.itemsize)
        num_rows = _even(max(1, len(hidden_RH)), most)
        buffer_CV = hidden_RH.new_empty(min(num_rows, len(hidden_RH)), num_tokens, dtype=self._dtype)
        for start, stop in slices(len(hidden_RH), num_rows):
            products_CV = buffer_CV[: stop - start]
            for first, last in slices(num_tokens, self._max_tokens):
                _multiply(hidden_RH[start:stop], self.weight[first:last].t(), products_CV[:, first:last])
            yield start, stop, products_CV

    def _pulled(self, hidden_RH: Tensor, pull: Pull) -> Iterator[tuple[int, int, int, int, Tensor]]:
        """Start and end of some rows, first and last of some tokens, and the gradient of their products.

        With log-sum-exp known a row need not be whole: many rows and some of the tokens make faster products, and fewer
        additions to the gradient of the weights, than few rows and all of the tokens. Where gradients are narrower than
        products, they get most of the memory, and products are made for some of their tokens at a time.
        """
        num_rows = max(1, min(self.chunks.max_rows, len(hidden_RH)))
        grad_dtype = self._grad_dtype
        is_narrow = grad_dtype != self._dtype
        share = 1 - _WIDE_SHARE if is_narrow else 1
        num_tokens = _even(len(self.weight), self._fitting(self._max_tokens, num_rows * grad_dtype.itemsize, share))
        num_wide = num_tokens
        if is_narrow:
            num_wide = _even(num_tokens, self._fitting(num_tokens, num_rows * self._dtype.itemsize, _WIDE_SHARE))
        grads = hidden_RH.new_empty(num_rows * num_tokens, dtype=grad_dtype)
        products = hidden_RH.new_empty(num_rows * num_wide, dtype=self._dtype) if is_narrow else grads
        for start, stop in slices(len(hidden_RH), num_rows):
            pulled = pull.rows(start, stop)
            for first, last in slices(len(self.weight), num_tokens):
                grad_CS = _matrix(grads, stop - start, last - first)
                for low, high in slices(last - first, num_wide):
                    products_CS = _matrix(products, stop - start, high - low)
                    begin, end = first + low, first + high
                    _multiply(hidden_RH[start:stop], self.weight[begin:end].t(), products_CS)
                    curve = self.curve.slab(begin, end)
                    self.chunks.gradient(products_CS, curve, pulled, first=begin, out_CV=grad_CS[:, low:high])
                yield start, stop, first, last, grad_CS

    @property
    def _dtype(self) -> torch.dtype:
        return wide(self.weight.dtype)

    @property
    def _grad_dtype(self) -> torch.dtype:
        """Of the gradient of products. A GPU adds what is narrow up in float32."""
        return self.weight.dtype if self.weight.is_cuda else self._dtype

    @property
    def _max_tokens(self) -> int:
        """Of a slab. Narrow weights that a product needs wide are made so in small slabs."""
        is_widened = self.weight.dtype != self._dtype and not self.weight.is_cuda
        return _WIDENED_TOKENS if is_widened else len(self.weight)

    def _fitting(self, most: int, num_bytes: int, share: float = 1) -> int:
        """How many rows or tokens of so many bytes fit into a share of a chunk."""
        fitting = int(share * self.chunks.max_bytes) // max(1, num_bytes)
        return max(1, min(most, fitting - fitting % _MULTIPLE if fitting > _MULTIPLE else fitting))


def _even(length: int, most: int) -> int:
    """The size of parts, none larger than `most`, that are about equal."""
    size = -(-length // -(-length // most))
    return min(most, -(-size // _MULTIPLE) * _MULTIPLE)


def _matrix(flat: Tensor, num_rows: int, num_columns: int) -> Tensor:
    """The beginning of a buffer."""
    return flat[: num_rows * num_columns].view(num_rows, num_columns)


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Narrow matrices are multiplied into a wide one without rounding between."""
    if left.dtype == right.dtype == out.dtype:
        return torch.mm(left, right, out=out)
    if left.is_cuda and left.dtype == right.dtype:
        # Rounded to bfloat16 first, one row in ten would have other tokens among its best four.
        torch.ops.aten.mm.dtype_out(left, right, out.dtype, out=out)
        return out
    return torch.mm(left.to(out.dtype), right.to(out.dtype), out=out)


def _add_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    if left.dtype == right.dtype == out.dtype:
        out.addmm_(left, right)
    else:
        out += left @ right.to(left.dtype)

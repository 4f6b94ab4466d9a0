# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, disable-error-code="possibly-undefined"
"""`Chunks` as Triton kernels: each reads a chunk of float32 products once, which is all that its time is.

Statistics take two. `tile_masses` leaves the largest logit and the mass of every tile of 1,024 tokens; the k largest
logits of a row lie in the k tiles with the largest maxima, so `best_tokens` reads only those. Bias, soft-cap and
temperature are applied on the way in. Imports triton, so it is imported only where there is a CUDA device, or for
Triton's interpreter. Knows no loop over chunks.

Axes: C rows of a chunk, V vocabulary or a slab of it, T tiles of a row, W tokens of a tile, G tiles of a program,
K top-k width, J tokens asked for, R rows, H hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from openclaw_rl.train.head.chunks import Curve, Pull

_TILE = 1024
_GROUP = 8
_BLOCK = 4096
_MOST_PICKED = 16
"""The largest k of `best_tokens`, which holds k tiles in registers."""


@triton.jit
def _logits(
    products, bias, columns, is_column, cap, inverse_temperature, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr
):
    """`Curve.logits`."""
    z = products
    if HAS_BIAS:
        z += tl.load(bias + columns, mask=is_column, other=0.0)
    if HAS_CAP:
        z = cap * (1.0 - 2.0 / (tl.exp(2.0 * z / cap) + 1.0))  # tanh
    return z * inverse_temperature


@triton.jit
def tile_masses(
    products,
    row_stride,
    bias,
    tile_max,
    tile_mass,
    V,
    num_tiles,
    cap,
    inverse_temperature,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    """Of each tile of a row the largest logit and the sum of exp(logit − largest)."""
    row = tl.program_id(0).to(tl.int64)
    tiles_G = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    columns_GW = tiles_G[:, None] * TILE + tl.arange(0, TILE)[None, :]
    is_column_GW = columns_GW < V
    z_GW = tl.load(products + row * row_stride + columns_GW, mask=is_column_GW, other=0.0)
    z_GW = _logits(z_GW, bias, columns_GW, is_column_GW, cap, inverse_temperature, HAS_BIAS, HAS_CAP)
    z_GW = tl.where(is_column_GW, z_GW, float("-inf"))
    max_G = tl.max(z_GW, 1)
    mass_G = tl.sum(tl.exp(z_GW - tl.where(tiles_G < num_tiles, max_G, 0.0)[:, None]), 1)
    tl.store(tile_max + row * num_tiles + tiles_G, max_G, mask=tiles_G < num_tiles)
    tl.store(tile_mass + row * num_tiles + tiles_G, mass_G, mask=tiles_G < num_tiles)


@triton.jit
def best_tokens(
    products,
    row_stride,
    bias,
    tile_max,
    best,
    V,
    num_tiles,
    cap,
    inverse_temperature,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Ids of a row's K largest logits, the largest first. SLOTS and TILES are K and num_tiles as powers of two."""
    row = tl.program_id(0).to(tl.int64)
    tiles_T = tl.arange(0, TILES)
    max_T = tl.load(tile_max + row * num_tiles + tiles_T, mask=tiles_T < num_tiles, other=float("-inf"))
    lanes = tl.arange(0, SLOTS * TILE)
    columns = tl.zeros([SLOTS * TILE], tl.int32) + num_tiles * TILE
    for slot in tl.static_range(K):
        largest, tile = tl.max(max_T, 0, return_indices=True)
        max_T = tl.where(tiles_T == tile, float("-inf"), max_T)
        # With fewer tiles than K the last slots are behind the vocabulary.
        tile = tl.where(largest == float("-inf"), num_tiles, tile)
        columns = tl.where(lanes // TILE == slot, tile * TILE + lanes % TILE, columns)
    is_column = columns < V
    z = tl.load(products + row * row_stride + columns, mask=is_column, other=0.0)
    z = _logits(z, bias, columns, is_column, cap, inverse_temperature, HAS_BIAS, HAS_CAP)
    z = tl.where(is_column, z, float("-inf"))
    for place in tl.static_range(K):
        _, lane = tl.max(z, 0, return_indices=True)
        tl.store(best + row * K + place, tl.sum(tl.where(lanes == lane, columns, 0), 0).to(tl.int64))
        z = tl.where(lanes == lane, float("-inf"), z)


@triton.jit
def block_entropies(
    products,
    row_stride,
    bias,
    lse,
    found,
    V,
    cap,
    inverse_temperature,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """−Σ p · log p over each block of a row."""
    row = tl.program_id(0).to(tl.int64)
    columns_V = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column_V = columns_V < V
    z_V = tl.load(products + row * row_stride + columns_V, mask=is_column_V, other=0.0)
    z_V = _logits(z_V, bias, columns_V, is_column_V, cap, inverse_temperature, HAS_BIAS, HAS_CAP)
    logprob_V = z_V - tl.load(lse + row)
    part_V = tl.where(is_column_V, tl.exp(logprob_V) * logprob_V, 0.0)
    tl.store(found + row * tl.num_programs(1) + tl.program_id(1), -tl.sum(part_V, 0))


@triton.jit(do_not_specialize=["first", "num_asked"])
def pulled(
    products,
    row_stride,
    out,
    out_stride,
    bias,
    lse,
    level,
    tilt,
    ids,
    at,
    num_asked,
    first,
    V,
    cap,
    inverse_temperature,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_TILT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of a block of products, rounded once, with what is pulled at ids. `out` may be the products."""
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * BLOCK
    lanes_V = tl.arange(0, BLOCK)
    columns_V = begin + lanes_V
    is_column_V = columns_V < V
    z_V = tl.load(products + row * row_stride + columns_V, mask=is_column_V, other=0.0)
    z_V = _logits(z_V, bias, columns_V, is_column_V, cap, inverse_temperature, HAS_BIAS, HAS_CAP)
    logprob_V = z_V - tl.load(lse + row)
    weight_V = tl.load(level + row)
    if HAS_TILT:
        weight_V += tl.load(tilt + row) * logprob_V
    grad_V = tl.exp(logprob_V) * weight_V
    for j in range(num_asked):
        lane = tl.load(ids + row * num_asked + j).to(tl.int32) - first - begin
        if (lane >= 0) & (lane < BLOCK):
            grad_V += tl.where(lanes_V == lane, tl.load(at + row * num_asked + j), 0.0)
    if HAS_CAP:
        share_V = z_V / (cap * inverse_temperature)
        grad_V *= 1.0 - share_V * share_V
    grad_V *= inverse_temperature
    tl.store(out + row * out_stride + columns_V, grad_V.to(out.dtype.element_ty), mask=is_column_V)


@triton.jit(do_not_specialize=["num_asked"])
def pair_dots(
    hidden, hidden_stride, weight, weight_stride, ids, found, num_asked, H: tl.constexpr, BLOCK_H: tl.constexpr
):
    """hidden · weight of one row and one token asked for: summed in the same order whatever is asked beside it."""
    pair = tl.program_id(0).to(tl.int64)
    hidden += pair // num_asked * hidden_stride
    weight += tl.load(ids + pair) * weight_stride
    sum_H = tl.zeros([BLOCK_H], tl.float32)
    for start in range(0, H, BLOCK_H):
        dims_H = start + tl.arange(0, BLOCK_H)
        x_H = tl.load(hidden + dims_H, mask=dims_H < H, other=0.0).to(tl.float32)
        sum_H += x_H * tl.load(weight + dims_H, mask=dims_H < H, other=0.0).to(tl.float32)
    tl.store(found + pair, tl.sum(sum_H, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonChunks:
    """Chunks of float32 products on a GPU."""

    max_rows: int
    max_bytes: int

    def stats(self, products_CV: Tensor, curve: Curve, k: int) -> tuple[Tensor, Tensor]:
        num_rows, num_tokens = products_CV.shape
        num_tiles = triton.cdiv(num_tokens, _TILE)
        max_CT, mass_CT = products_CV.new_empty(2, num_rows, num_tiles)
        chunk = (products_CV, products_CV.stride(0))
        sizes = (num_tokens, num_tiles)
        grid = (num_rows, triton.cdiv(num_tiles, _GROUP))
        bias, *bend, flags = _arguments(curve, products_CV)
        tile_masses[grid](*chunk, bias, max_CT, mass_CT, *sizes, *bend, **flags, GROUP=_GROUP, TILE=_TILE, num_warps=8)
        if k > _MOST_PICKED:
            ids_CK = (products_CV if curve.bias is None else products_CV.add_(curve.bias)).topk(k, dim=-1).indices
        else:
            ids_CK = torch.empty(num_rows, k, dtype=torch.int64, device=products_CV.device)
        if 0 < k <= _MOST_PICKED:
            slots, tiles = triton.next_power_of_2(k), triton.next_power_of_2(num_tiles)
            shape: dict[str, Any] = {"K": k, "SLOTS": slots, "TILES": tiles, "TILE": _TILE, "num_warps": 8}
            best_tokens[(num_rows,)](*chunk, bias, max_CT, ids_CK, *sizes, *bend, **flags, **shape)
        return torch.logsumexp(mass_CT.log_().add_(max_CT), dim=-1), ids_CK

    def entropy(self, products_CV: Tensor, curve: Curve, lse_C: Tensor) -> Tensor:
        num_rows, num_tokens = products_CV.shape
        grid = (num_rows, triton.cdiv(num_tokens, _BLOCK))
        found = products_CV.new_empty(grid)
        bias, *bend, flags = _arguments(curve, products_CV)
        block_entropies[grid](
            products_CV,
            products_CV.stride(0),
            bias,
            lse_C,
            found,
            num_tokens,
            *bend,
            **flags,
            BLOCK=_BLOCK,
            num_warps=8,
        )
        return found.sum(-1)

    def gradient(self, products_CV: Tensor, curve: Curve, pull: Pull, *, first: int, out_CV: Tensor) -> None:
        num_rows, num_tokens = products_CV.shape
        bias, *bend, flags = _arguments(curve, products_CV)
        num_asked = 0 if pull.ids is None else pull.ids.shape[-1]
        ids, at = (pull.lse if values is None else values.contiguous() for values in (pull.ids, pull.at))
        pulled[(num_rows, triton.cdiv(num_tokens, _BLOCK))](
            *(products_CV, products_CV.stride(0), out_CV, out_CV.stride(0), bias),
            *(pull.lse, pull.level, pull.lse if pull.tilt is None else pull.tilt),
            *(ids, at, num_asked, first, num_tokens),
            *bend,
            **flags,
            HAS_TILT=pull.tilt is not None,
            BLOCK=_BLOCK,
            num_warps=8,
        )

    def dots(self, hidden_RH: Tensor, weight_VH: Tensor, ids_RJ: Tensor) -> Tensor:
        assert hidden_RH.stride(1) == weight_VH.stride(1) == 1
        found_RJ = hidden_RH.new_empty(ids_RJ.shape, dtype=torch.float32)
        if found_RJ.numel():
            matrices = (hidden_RH, hidden_RH.stride(0), weight_VH, weight_VH.stride(0))
            sizes = (ids_RJ.shape[-1], hidden_RH.shape[-1])
            pair_dots[(found_RJ.numel(),)](*matrices, ids_RJ.contiguous(), found_RJ, *sizes, BLOCK_H=1024, num_warps=4)
        return found_RJ


def _arguments(curve: Curve, products_CV: Tensor) -> tuple[Tensor, float, float, dict[str, bool]]:
    """Bias, cap and inverse temperature, with a stand-in for what there is not, and what there is."""
    flags = {"HAS_BIAS": curve.bias is not None, "HAS_CAP": curve.softcap is not None}
    bias = products_CV if curve.bias is None else curve.bias
    return bias, 1.0 if curve.softcap is None else curve.softcap, 1 / curve.temperature, flags

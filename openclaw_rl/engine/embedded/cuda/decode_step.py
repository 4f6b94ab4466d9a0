"""A table of rows on the device -> their logits and drawn tokens: the kernels of one decode step, in order.

Buffers are made once and every launch depends on the number of rows alone, so that a graph can record it (`graphs.py`).
The simple ways of drawing a token (greedy, or a temperature and nothing else) are part of it, with the log-prob. Knows
neither strands nor slots.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from openclaw_rl.engine.embedded.cuda.adapters import AdapterLayout
from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Module
from openclaw_rl.model.network import DenseLinear, Linear, Network

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""A batch runs on the graph of the next larger size; the rows that are too many work on a strand nobody reads."""


class LayerBlock(NamedTuple):
    """How a product is cut: outputs per program, inputs per turn of its loop, turns whose loads are under way."""

    outputs: int
    inputs: int
    turns: int


# Chosen by measuring on an H200 with the shape of Qwen3-4B; right on any GPU.
_ONE_ROW: Mapping[str, LayerBlock] = {
    "qkv": LayerBlock(4, 512, 6),
    "o": LayerBlock(4, 1024, 3),
    "gate_up": LayerBlock(2, 512, 6),
    "down": LayerBlock(8, 512, 4),
    "head": LayerBlock(4, 512, 3),
}
_ONE_ROW_LORA: Mapping[str, LayerBlock] = {
    "qkv": LayerBlock(8, 512, 5),
    "o": LayerBlock(4, 1024, 3),
    "gate_up": LayerBlock(4, 512, 5),
    "down": LayerBlock(4, 512, 4),
}
_MANY_ROWS: Mapping[str, LayerBlock] = {
    "qkv": LayerBlock(32, 128, 4),
    "o": LayerBlock(16, 128, 5),
    "gate_up": LayerBlock(16, 256, 3),
    "down": LayerBlock(16, 128, 5),
    "head": LayerBlock(16, 256, 3),
}
_CACHE_BLOCK = 64
"""Cached tokens in a turn of attention."""
_VOCABULARY_TILE = 1024


class DecodeStep:
    """The kernels of one step over fixed buffers; launches them on the current stream, for a graph to record."""

    def __init__(self, network: Network, *, max_batch: int, max_rank: int, max_adapters: int) -> None:
        from openclaw_rl.engine.embedded.cuda import kernels

        self._kernels = kernels
        self._network = network
        self._max_batch = max_batch
        self._max_rank = _power_of_two(max(16, max_rank))  # a block of Triton's
        self._max_adapters = max_adapters
        self._layout = AdapterLayout(network.arch)
        arch, device = network.arch, network.device
        self._can_overlap = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)

        def buffer(*shape: int, dtype: torch.dtype = network.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.inputs = buffer(kernels.NUM_FIELDS, max_batch, dtype=torch.int64)
        self.logits_BV = buffer(max_batch, arch.vocab_size, dtype=torch.float32)
        self.drawn = buffer(2, max_batch, dtype=torch.float64)
        """Token ids, then log-probs."""
        self._x = buffer(max_batch, arch.hidden_size)
        self._scaled = buffer(max_batch, arch.hidden_size)  # x times the weight of the next norm
        self._squares = buffer(max_batch, arch.hidden_size, dtype=torch.float32)  # parts of the sum of x²
        self._qkv = buffer(max_batch, arch.query_size + 2 * arch.kv_size)
        self._attended = buffer(max_batch, arch.query_size)
        self._inner = buffer(max_batch, arch.mlp_size)
        most_splits = max(self._num_splits(rows) * rows for rows in batch_sizes(max_batch))
        self._partial = buffer(most_splits * arch.query_size, dtype=torch.float32)
        self._partial_lse = buffer(most_splits * arch.num_heads, dtype=torch.float32)
        self._num_tiles = -(-arch.vocab_size // _VOCABULARY_TILE)
        self._tile_max = buffer(max_batch, self._num_tiles, dtype=torch.float32)
        self._tile_best = buffer(max_batch, self._num_tiles, dtype=torch.int32)
        self._tile_mass = buffer(max_batch, self._num_tiles, dtype=torch.float64)
        # A·x of every projection; the bits of floats, because what is not yet written is told by its bits.
        self._shrunk = buffer(max_batch, arch.num_layers, len(MODULES), 3 * self._max_rank, dtype=torch.int32)

    @torch.no_grad()
    def run(self, num_rows: int, *, lora: bool) -> None:
        """From the table `inputs` to `logits_BV` and `drawn`, for the first `num_rows` rows."""
        self.compute(num_rows, lora=lora)
        self.draw(num_rows)

    def compute(self, num_rows: int, *, lora: bool) -> None:
        """Up to the logits."""
        weights = self._network.weights
        rope = self._network.rope(self.inputs[self._kernels.POSITION.value, :num_rows])
        if lora:
            self._shrunk[:num_rows].fill_(self._kernels.UNWRITTEN.value)
        self._embed(num_rows, weights.layers[0].input_norm)
        num_squares = 1
        next_norms = [*(layer.input_norm for layer in weights.layers[1:]), weights.final_norm]
        for index, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
            multiply = partial(self._multiply, num_rows, lora_layer=index if lora else None)
            multiply("qkv", layer.qkv, self._scaled, self._qkv, num_squares=num_squares)
            self._attend(num_rows, index, rope, layer.q_norm, layer.k_norm)
            num_squares = multiply("o", layer.o, self._attended, self._x, next_norm=layer.post_norm)
            multiply("gate_up", layer.gate_up, self._scaled, self._inner, num_squares=num_squares)
            num_squares = multiply("down", layer.down, self._inner, self._x, next_norm=next_norm)
        self._multiply(num_rows, "head", weights.head, self._scaled, self.logits_BV, num_squares=num_squares)

    def draw(self, num_rows: int) -> None:
        """One token of each row of `logits_BV`."""
        rows = {"MAX_BATCH": self._max_batch, "V": self._network.arch.vocab_size, "TILE": _VOCABULARY_TILE}
        tiles = (self._tile_max, self._tile_best, self._tile_mass)
        self._kernels.weigh[(num_rows, self._num_tiles)](
            self.logits_BV, self.inputs, *tiles, **rows, **self._overlap(num_rows)
        )
        self._kernels.draw[(num_rows,)](
            self.logits_BV,
            self.inputs,
            *tiles,
            self.drawn,
            **rows,
            NUM_TILES=self._num_tiles,
            BLOCK_T=_power_of_two(self._num_tiles),
            **self._overlap(num_rows),
        )

    def _attend(
        self, num_rows: int, index: int, rope: tuple[Tensor, Tensor], q_norm: Tensor | None, k_norm: Tensor | None
    ) -> None:
        arch, kernels = self._network.arch, self._kernels
        num_splits = self._num_splits(num_rows)
        shape = {"MAX_BATCH": self._max_batch, "NUM_HEADS": arch.num_heads, "D": arch.head_dim}
        split = {"NUM_SPLITS": num_splits, "BLOCK_C": _CACHE_BLOCK}
        kernels.attend[(num_rows * arch.num_kv_heads, num_splits)](
            self._qkv,
            self._x if q_norm is None else q_norm,
            self._x if k_norm is None else k_norm,
            *rope,
            self.inputs,
            self._partial,
            self._partial_lse,
            index,
            arch.rms_eps,
            **shape,
            NUM_KV_HEADS=arch.num_kv_heads,
            QK_NORM=q_norm is not None,
            BLOCK_G=max(16, _power_of_two(arch.num_heads // arch.num_kv_heads)),
            NUM_STAGES=3 if num_rows == 1 else 2,
            **split,
            num_warps=4,
        )
        kernels.combine[(num_rows * arch.num_heads,)](
            self._partial,
            self._partial_lse,
            self.inputs,
            self._attended,
            **shape,
            **split,
            **self._overlap(num_rows),
        )

    def _overlap(self, num_rows: int) -> dict[str, bool]:
        """Options of a launch that begins before the one before it ends.

        With one row that saves 10 % of a step. With more it costs 10 %: attention finds the multiprocessors unevenly
        taken. It is never begun early itself.
        """
        overlaps = self._can_overlap and num_rows == 1
        return {"DEPENDENT": True, "launch_pdl": True} if overlaps else {"DEPENDENT": False}

    def _embed(self, num_rows: int, norm: Tensor) -> None:
        hidden_size = self._network.arch.hidden_size
        self._kernels.embed[(num_rows,)](
            self._network.weights.embedding,
            norm,
            self.inputs,
            self._x,
            self._scaled,
            self._squares,
            MAX_BATCH=self._max_batch,
            MAX_SQUARES=self._squares.shape[1],
            H=hidden_size,
            BLOCK_H=_power_of_two(hidden_size),
            **self._overlap(num_rows),
        )

    def _multiply(
        self,
        num_rows: int,
        name: Module | Literal["head"],
        linear: Linear,
        x: Tensor,
        out: Tensor,
        *,
        num_squares: int = 0,
        next_norm: Tensor | None = None,
        lora_layer: int | None = None,
    ) -> int:
        """One product: `out` = `linear` of `x`, or `out` += that, ready for the norm `next_norm`.

        `num_squares` programs left parts of the sum of x², by which x is to be normed; 0 if it is not. Gives how many
        programs did that here.
        """
        arch = self._network.arch
        weight = _matrix(linear)
        num_outputs, num_inputs = weight.shape
        epilogue = {"o": "add", "down": "add", "gate_up": "swiglu"}.get(name, "store")
        num_outputs = num_outputs // 2 if epilogue == "swiglu" else num_outputs
        blocks = _MANY_ROWS if num_rows > 1 else _ONE_ROW if lora_layer is None else _ONE_ROW_LORA
        block_outputs, block_inputs, turns = blocks[name]
        if name == "qkv":  # a block lies in one part
            block_outputs = min(block_outputs, _divisor(math.gcd(arch.query_size, arch.kv_size)))
        num_blocks = -(-num_outputs // block_outputs)
        shrunk, adapter_offset, num_parts, max_rank, shrink_blocks, num_shrinking = self._shrunk, 0, 0, 0, 1, 0
        if lora_layer is not None and name != "head":
            shrunk = self._shrunk[0, lora_layer, list(MODULES).index(name)]
            adapter_offset = self._layout.offset(lora_layer, name)
            num_parts, max_rank = len(arch.projections(name)), self._max_rank
            shrink_rows = max_rank if epilogue == "swiglu" else num_parts * max_rank
            shrink_blocks = -(-shrink_rows // block_outputs)
            num_shrinking = shrink_blocks * min(num_rows, self._max_adapters)
        shared = {
            "MAX_BATCH": self._max_batch,
            "K": num_inputs,
            "N": num_outputs,
            "NUM_SQUARES": num_squares,
            "BLOCK_SQUARES": _power_of_two(max(1, num_squares)),
            "MAX_SQUARES": self._squares.shape[1],
            "EPILOGUE": epilogue,
            "MAX_RANK": max_rank,
            "NUM_PARTS": num_parts,
            "FIRST_END": arch.query_size,
            "SECOND_END": arch.query_size + arch.kv_size,
            "SHRUNK_STRIDE": self._shrunk.stride(0),
            "SHRINK_BLOCKS": shrink_blocks,
            "NUM_SHRINKING": num_shrinking,
            "BLOCK_N": block_outputs,
        }
        next_norm = self._x if next_norm is None else next_norm
        tensors = (x, self._squares, weight, out, next_norm, self._scaled, shrunk, self.inputs)
        grid = (num_shrinking + num_blocks,)
        if num_rows == 1:
            block_inputs = min(block_inputs, _divisor(num_inputs))
            self._kernels.vector_linear[grid](
                *tensors,
                adapter_offset,
                arch.rms_eps,
                **shared,
                BLOCK_K=block_inputs,
                NUM_STAGES=turns,
                num_warps=max(1, block_inputs // 256),
                **self._overlap(num_rows),
            )
        else:
            self._kernels.matrix_linear[grid](
                *tensors,
                num_rows,
                adapter_offset,
                arch.rms_eps,
                **shared,
                BLOCK_B=max(8, _power_of_two(num_rows)),
                BLOCK_K=min(block_inputs, _divisor(num_inputs) // 2),
                num_warps=2,
                num_stages=turns,
            )
        return num_blocks

    def _num_splits(self, num_rows: int) -> int:
        """A power of two, so that rows times heads times splits fill the GPU."""
        wanted = (256 if num_rows == 1 else 512) // (num_rows * self._network.arch.num_kv_heads)
        return 1 << max(2, min(6, wanted.bit_length() - 1))


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """The sizes that graphs are captured for."""
    return (*[size for size in BATCH_SIZES if size < max_batch], max_batch)


def _matrix(linear: Linear) -> Tensor:
    if not isinstance(linear, DenseLinear) or not linear.weight.is_contiguous():
        raise ModelError("graphs decode dense weights only; load them onto the device with load_weights")
    return linear.weight


def _power_of_two(size: int) -> int:
    """The smallest that is not smaller."""
    return 1 << (size - 1).bit_length()


def _divisor(size: int) -> int:
    """The largest power of two that divides it."""
    return size & -size

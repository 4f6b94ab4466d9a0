"""Token ids and positions become hidden states and logits: a decoder of the Llama or Qwen3 family, in plain torch.

Written once for the engine and the trainer, who differ in two things and pass them in: how tokens see each other
(`Attend`: a KV cache, or packed sequences) and which adapters add to the projections (`Lora`). A batch is flat: T
tokens of any sequences, told apart by whoever attends. Everything can be differentiated; nothing is written in place.
Knows no cache, no mask, no file and no quantisation (`Linear` hides it).

Axes: T tokens, H hidden, N query heads, K key/value heads, D head dim, V vocabulary, R any rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from openclaw_rl.model.architecture import Architecture, LinearScaling, Llama3Scaling, Rope
from openclaw_rl.model.architecture import Module as Module
from openclaw_rl.model.elementwise import PLAIN, Elementwise, fused
from openclaw_rl.model.product import choose_product


class Linear(Protocol):
    """x [T, in] -> [T, out], contiguous; dense, quantised, …"""

    @property
    def out_features(self) -> int: ...

    def __call__(self, x: Tensor) -> Tensor: ...


class Attend(Protocol):
    """Softmax attention of queries [T, N, D] that are normed and turned already -> [T, N·D]."""

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor: ...


class Lora(Protocol):
    """Adds the adapters' part, computed from a projection's input x, to its output y; in place or not."""

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor: ...


Before = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""A layer up to its attention: x [T, H] -> queries, keys, values."""

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys, values -> [T, N·D]."""

After = Callable[[Tensor, Tensor], Tensor]
"""A layer behind its attention: x [T, H] and what was attended to -> [T, H]."""


class RunLayer(Protocol):
    """after(x, attention(*before(x))), and what of it is kept for the backward pass."""

    def __call__(self, before: Before, attention: Attention, after: After, x_TH: Tensor) -> Tensor: ...


class DenseLinear:
    """A matrix [out, in] as the checkpoint stores it."""

    __slots__ = ("_product", "out_features", "weight")

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.out_features: int = weight.shape[0]
        self._product = choose_product(weight)

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, self.weight)


class SplitLinear:
    """Matrices that lie apart in a mapped file and are stacked by their outputs, so that nothing is copied."""

    __slots__ = ("out_features", "parts")

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.parts = tuple(DenseLinear(weight) for weight in weights)
        self.out_features = sum(part.out_features for part in self.parts)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One block. `qkv` puts out the query heads, the key heads, the value heads; `gate_up` the gate, then the rest."""

    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """All of a model. With a tied head `head` is a DenseLinear over `embedding` itself."""

    embedding: Tensor
    """[V, H]"""
    layers: Sequence[LayerWeights]
    final_norm: Tensor
    head: Linear


class Network:
    """The forward pass over given weights. Holds no state: many may call it at once."""

    def __init__(self, arch: Architecture, weights: Weights, *, is_fused: bool = False) -> None:
        """With `is_fused` a GPU's element-wise work is compiled: half a minute once per process, so for training."""
        self.arch = arch
        self._weights = weights
        self.device = weights.final_norm.device
        self.dtype = weights.final_norm.dtype
        """Of the activations."""
        self._frequencies = rope_frequencies(arch.rope, arch.head_dim).to(self.device)
        self._elementwise: Elementwise = fused() if is_fused and self.device.type == "cuda" else PLAIN

    @property
    def weights(self) -> Weights:
        """What is computed with."""
        return self._weights

    @property
    def is_fused(self) -> bool:
        """Whether element-wise work is compiled, which also keeps less for a backward pass."""
        return self._elementwise is not PLAIN

    def unfused(self) -> Network:
        """The same weights, nothing compiled."""
        return Network(self.arch, self.weights) if self.is_fused else self

    def rope(self, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """The cosine and sine of every position, [T, D/2] in float32."""
        angles = positions_T.to(torch.float32).unsqueeze(-1) * self._frequencies
        return angles.cos(), angles.sin()

    def hidden(
        self,
        ids_T: Tensor,
        positions_T: Tensor,
        attend: Attend,
        lora: Lora | None = None,
        run_layer: RunLayer | None = None,
        *,
        num_layers: int | None = None,
    ) -> Tensor:
        """[T, H] after the final norm; behind the first `num_layers` blocks, and not normed, where these are named.

        `run_layer`, where there is one, runs every block on its input.
        """
        x = functional.embedding(ids_T, self.weights.embedding)
        cos, sin = self.rope(positions_T)
        # Cosine and signed sine [T, 1, D]: with them a turn is h·cos + swapped halves of h·sin, three operations.
        spread = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        rope = spread[0].to(self.dtype).unsqueeze(1), spread[1].to(self.dtype).unsqueeze(1)
        for index in range(self.arch.num_layers if num_layers is None else num_layers):
            x = self._block(index, x, rope, attend, lora, run_layer)
        return x if num_layers is not None else self._elementwise.norm(x, self.weights.final_norm, self.arch.rms_eps)

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """[R, V] in float32."""
        head = self.weights.head
        is_narrow = hidden_RH.is_cuda and hidden_RH.dtype != torch.float32
        if is_narrow and isinstance(head, DenseLinear) and not torch.is_grad_enabled():
            # Rounded to bfloat16 first, one row in ten would have other tokens among its best four.
            return torch.mm(hidden_RH, head.weight.t(), out_dtype=torch.float32)
        return head(hidden_RH).float()

    def _block(
        self,
        index: int,
        x: Tensor,
        rope: tuple[Tensor, Tensor],
        attend: Attend,
        lora: Lora | None,
        run_layer: RunLayer | None,
    ) -> Tensor:
        if run_layer is None:
            return self._after(index, x, attend(index, *self._before(index, x, rope, lora)), lora)
        before = partial(self._before, index, rope=rope, lora=lora)
        return run_layer(before, partial(attend, index), partial(self._after, index, lora=lora), x)

    def _before(
        self, index: int, x: Tensor, rope: tuple[Tensor, Tensor], lora: Lora | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        arch, layer, does = self.arch, self.weights.layers[index], self._elementwise
        normed = does.norm(x, layer.input_norm, arch.rms_eps)
        qkv = layer.qkv(normed)
        if lora is not None:
            qkv = lora.add(index, "qkv", normed, qkv)
        cos, sin = rope
        return does.turn(qkv, cos, sin, layer.q_norm, layer.k_norm, arch.num_heads, arch.num_kv_heads, arch.rms_eps)

    def _after(self, index: int, x: Tensor, attended: Tensor, lora: Lora | None) -> Tensor:
        layer, does = self.weights.layers[index], self._elementwise
        y = layer.o(attended)
        if lora is not None:
            y = lora.add(index, "o", attended, y)
        x, normed = does.add_norm(x, y, layer.post_norm, self.arch.rms_eps)
        gate_up = layer.gate_up(normed)
        if lora is not None:
            gate_up = lora.add(index, "gate_up", normed, gate_up)
        inner = does.gate(gate_up)
        y = layer.down(inner)
        if lora is not None:
            y = lora.add(index, "down", inner, y)
        return x + y


def rope_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """The angle per position of each pair, [D/2].

    In float32 and in transformers' order of operations: a last bit here is 1e-3 rad at position 10,000.
    """
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    match rope.scaling:
        case None:
            return frequencies
        case LinearScaling(factor=factor):
            return frequencies / factor
        case Llama3Scaling() as scaling:
            # https://arxiv.org/abs/2407.21783 and the reference code of Llama 3.1
            turns = scaling.original_context / (2 * math.pi / frequencies)
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            blend = ((turns - low) / (high - low)).clamp(0, 1)
            return (1 - blend) * frequencies / scaling.factor + blend * frequencies

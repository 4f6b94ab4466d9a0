"""Networks with random weights, strands to decode and the plain forward pass that says what is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.architecture import Architecture, Rope
from openclaw_rl.model.network import DenseLinear, LayerWeights, Linear, Network, Weights


def architecture(
    family: Literal["llama", "qwen3"] = "qwen3",
    *,
    num_layers: int = 3,
    hidden_size: int = 96,
    mlp_size: int = 160,
    num_heads: int = 6,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    vocab_size: int = 1500,
) -> Architecture:
    """Tiny, with sizes that no block divides evenly."""
    return Architecture(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        mlp_size=mlp_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        rms_eps=1e-6,
        rope=Rope(theta=10_000.0),
        qk_norm=family == "qwen3",
        tied_head=True,
        context_window=8192,
    )


def random_network(arch: Architecture, *, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Network:
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, std: float) -> Tensor:
        return (torch.randn(shape, generator=generator, device=device) * std).to(dtype)

    def matrix(num_outputs: int, num_inputs: int) -> DenseLinear:
        return DenseLinear(normal(num_outputs, num_inputs, std=1 / math.sqrt(num_inputs)))

    def norm(size: int) -> Tensor:
        return 1 + normal(size, std=0.1)

    layers = tuple(
        LayerWeights(
            input_norm=norm(arch.hidden_size),
            qkv=matrix(arch.query_size + 2 * arch.kv_size, arch.hidden_size),
            q_norm=norm(arch.head_dim) if arch.qk_norm else None,
            k_norm=norm(arch.head_dim) if arch.qk_norm else None,
            o=matrix(arch.hidden_size, arch.query_size),
            post_norm=norm(arch.hidden_size),
            gate_up=matrix(2 * arch.mlp_size, arch.hidden_size),
            down=matrix(arch.hidden_size, arch.mlp_size),
        )
        for _ in range(arch.num_layers)
    )
    embedding = normal(arch.vocab_size, arch.hidden_size, std=1.0)
    head = DenseLinear(embedding)
    return Network(arch, Weights(embedding=embedding, layers=layers, final_norm=norm(arch.hidden_size), head=head))


def widened(network: Network) -> Network:
    """The same weights in float32."""

    def wide(linear: Linear) -> DenseLinear:
        assert isinstance(linear, DenseLinear)
        return DenseLinear(linear.weight.float())

    weights = network.weights
    layers = tuple(
        LayerWeights(
            input_norm=layer.input_norm.float(),
            qkv=wide(layer.qkv),
            q_norm=None if layer.q_norm is None else layer.q_norm.float(),
            k_norm=None if layer.k_norm is None else layer.k_norm.float(),
            o=wide(layer.o),
            post_norm=layer.post_norm.float(),
            gate_up=wide(layer.gate_up),
            down=wide(layer.down),
        )
        for layer in weights.layers
    )
    return Network(
        network.arch,
        Weights(
            embedding=weights.embedding.float(),
            layers=layers,
            final_norm=weights.final_norm.float(),
            head=wide(weights.head),
        ),
    )


def widened_adapter(adapter: AdapterWeights) -> AdapterWeights:
    wide = AdapterWeights(
        adapter.arch,
        rank=adapter.rank,
        alpha=adapter.alpha,
        targets=adapter.targets,
        device=adapter.flat.device,
        dtype=torch.float32,
    )
    wide.flat.copy_(adapter.flat)
    return wide


@dataclass(slots=True)
class Row:
    """A strand with `length` random tokens in it."""

    kv: Tensor
    length: int

    @classmethod
    def random(cls, network: Network, length: int, *, capacity: int, seed: int) -> Row:
        arch = network.arch
        generator = torch.Generator(network.device).manual_seed(seed)
        shape = (arch.num_layers, 2, arch.num_kv_heads, capacity, arch.head_dim)
        kv = torch.randn(shape, generator=generator, device=network.device).to(network.dtype)
        kv[:, :, :, length:] = math.nan  # nobody may read what was not written
        return cls(kv, length)

    def copy(self, *, capacity: int | None = None) -> Row:
        kv = self.kv.new_full((*self.kv.shape[:3], capacity or self.kv.shape[3], self.kv.shape[4]), math.nan)
        kv[:, :, :, : self.length] = self.kv[:, :, :, : self.length]
        return Row(kv, self.length)


class PlainAttention:
    """`Attend` for one new token of each row, in float64 and without any cleverness."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        for row, q_ND, k_KD, v_KD in zip(self._rows, q_TND, k_TKD, v_TKD, strict=True):
            row.kv[layer, 0, :, row.length] = k_KD
            row.kv[layer, 1, :, row.length] = v_KD
            keys_KCD, values_KCD = row.kv[layer, :, :, : row.length + 1].double()
            q_KGD = q_ND.double().view(k_KD.shape[0], -1, q_ND.shape[-1])
            weights_KGC = torch.softmax(q_KGD @ keys_KCD.mT / math.sqrt(q_ND.shape[-1]), dim=-1)
            outputs.append((weights_KGC @ values_KCD).flatten())
        return torch.stack(outputs).to(q_TND.dtype)


@torch.no_grad()
def plain_logits(
    network: Network, rows: Sequence[Row], token_ids: Sequence[int], adapters: Sequence[AdapterWeights | None] = ()
) -> Tensor:
    """[B, V] by the network's own forward pass. Writes into the rows, like the decoder."""
    ids_T = torch.tensor(token_ids, device=network.device)
    positions_T = torch.tensor([row.length for row in rows], device=network.device)
    worn = [(slice(i, i + 1), adapter) for i, adapter in enumerate(adapters) if adapter is not None]
    hidden_TH = network.hidden(ids_T, positions_T, PlainAttention(rows), LoraRows(worn) if worn else None)
    return hidden_TH.float() @ network.weights.embedding.float().T

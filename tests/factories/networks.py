"""Small random networks that learn, of both families, without a file; and attention that stores what a GPU's stores."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function

from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import Architecture, Rope
from openclaw_rl.model.elementwise import Elementwise, fuse
from openclaw_rl.model.network import DenseLinear, LayerWeights, Network, Weights

CPU = torch.device("cpu")


def shape(family: Literal["llama", "qwen3"], **changes: Any) -> Architecture:
    values: dict[str, Any] = {
        "family": family,
        "num_layers": 3,
        "hidden_size": 48,
        "mlp_size": 80,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 8,
        "vocab_size": 97,
        "rms_eps": 1e-5,
        "rope": Rope(theta=1e4),
        "qk_norm": family == "qwen3",
        "tied_head": True,
        "context_window": 512,
    }
    return Architecture(**values | changes)


def random_network(
    arch: Architecture,
    *,
    learns: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
    is_fused: bool = False,
) -> Network:
    generator = torch.Generator().manual_seed(3)

    def matrix(out: int, size: int) -> Tensor:
        made = torch.randn(out, size, generator=generator) / math.sqrt(size)
        return made.to(device, dtype).requires_grad_(learns)

    def norm(size: int) -> Tensor:
        return torch.empty(size).uniform_(0.5, 1.5, generator=generator).to(device, dtype).requires_grad_(learns)

    hidden, head_dim = arch.hidden_size, arch.head_dim
    layers = tuple(
        LayerWeights(
            input_norm=norm(hidden),
            qkv=DenseLinear(matrix(arch.query_size + 2 * arch.kv_size, hidden)),
            q_norm=norm(head_dim) if arch.qk_norm else None,
            k_norm=norm(head_dim) if arch.qk_norm else None,
            o=DenseLinear(matrix(hidden, arch.query_size)),
            post_norm=norm(hidden),
            gate_up=DenseLinear(matrix(2 * arch.mlp_size, hidden)),
            down=DenseLinear(matrix(hidden, arch.mlp_size)),
        )
        for _ in range(arch.num_layers)
    )
    embedding = matrix(arch.vocab_size, hidden)
    weights = Weights(embedding=embedding, layers=layers, final_norm=norm(hidden), head=DenseLinear(embedding))
    return Network(arch, weights, is_fused=is_fused)


@cache
def compiled() -> Elementwise:
    """What a GPU would compute with and store, up to the kernels, which are torch's own."""
    return fuse("aot_eager_decomp_partition")


def parameters_of(network: Network) -> dict[str, Tensor]:
    found = {"embedding": network.weights.embedding, "final_norm": network.weights.final_norm}
    for index, layer in enumerate(network.weights.layers):
        for name in LayerWeights.__dataclass_fields__:
            part = getattr(layer, name)
            if part is not None:
                found[f"{index}.{name}"] = part.weight if isinstance(part, DenseLinear) else part
    return found


def random_adapter(arch: Architecture, **changes: Any) -> AdapterWeights:
    """Of which neither matrix is zero."""
    values: dict[str, Any] = {"rank": 4, "alpha": 8.0, "seed": 5, "b_std": 0.3, "device": CPU, "dtype": torch.float32}
    return AdapterWeights.random(arch, **values | changes)


def causal(layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    """One sequence from its beginning. Saves q, k, v, its output and the log-sum-exp of each row, and nothing else."""
    out: Tensor = _Causal.apply(q_TND, k_TKD, v_TKD)  # type: ignore[no-untyped-call]
    return out


class _Causal(Function):
    @staticmethod
    def forward(ctx: Any, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        out_TND, lse_NT = _attend(q_TND, k_TKD, v_TKD)
        out = out_TND.flatten(1)
        ctx.save_for_backward(q_TND, k_TKD, v_TKD, out, lse_NT)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, ...]:
        *qkv, _, _ = ctx.saved_tensors
        leaves = [x.detach().requires_grad_() for x in qkv]
        with torch.enable_grad():
            out = _attend(*leaves)[0].flatten(1)
        return torch.autograd.grad(out, leaves, d_out)


def _attend(q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> tuple[Tensor, Tensor]:
    size, group = len(q_TND), q_TND.shape[1] // k_TKD.shape[1]
    k_TND, v_TND = k_TKD.repeat_interleave(group, 1), v_TKD.repeat_interleave(group, 1)
    scores_NTT = torch.einsum("qnd,knd->nqk", q_TND, k_TND) / math.sqrt(q_TND.shape[-1])
    scores_NTT = scores_NTT.masked_fill(
        torch.ones(size, size, dtype=torch.bool, device=q_TND.device).triu(1), -math.inf
    )
    lse_NT = scores_NTT.logsumexp(-1)
    return torch.einsum("nqk,knd->qnd", (scores_NTT - lse_NT[..., None]).exp(), v_TND), lse_NT

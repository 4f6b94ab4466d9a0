"""Tiny checkpoints of every kind that the network computes, made by transformers, and transformers' answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.network import Network
from openclaw_rl.model.weights import load_weights

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, own head": ("llama", {"tie_word_embeddings": False, "num_key_value_heads": 6}),
    "llama, wide heads": ("llama", {"head_dim": 16, "num_key_value_heads": 3}),
    "llama 3": ("llama", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e3, "factor": 3.0}}),
    "qwen3": ("qwen3", {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3, own head": ("qwen3", {"tie_word_embeddings": False, "num_key_value_heads": 1}),
}


def make_model(kind: str) -> Any:
    """A transformers model, random but fixed; the norms too, which transformers would leave at one."""
    family, changed = KINDS[kind]
    options = SMALL | changed
    torch.manual_seed(0)
    model: Any
    if family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**options))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model.eval()


def load_network(folder: Path, dtype: torch.dtype = torch.float32) -> Network:
    arch = Architecture.from_config(json.loads((folder / "config.json").read_text()))
    assert arch is not None
    return Network(arch, load_weights(folder, arch, device=CPU, dtype=dtype))


def save_network(model: Any, folder: Path) -> Network:
    model.save_pretrained(folder)
    return load_network(folder)


def see_all_before(layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    """One sequence from its beginning."""
    q, k, v = (heads.transpose(0, 1)[None] for heads in (q_TND, k_TKD, v_TKD))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1).flatten(1)


class SeeOwnSequence:
    """Several sequences in one flat batch, each from its beginning."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        parts = zip(*(heads.split(self._lengths) for heads in (q_TND, k_TKD, v_TKD)), strict=True)
        return torch.cat([see_all_before(layer, q, k, v) for q, k, v in parts])


def some_ids(count: int, *, seed: int = 1, vocab_size: int = 97) -> Tensor:
    return torch.randint(vocab_size, (count,), generator=torch.Generator().manual_seed(seed))


def compute(network: Network, ids_T: Tensor, lora: Any = None) -> Tensor:
    """The logits of one sequence from its beginning."""
    return network.logits(network.hidden(ids_T, torch.arange(len(ids_T)), see_all_before, lora))

"""Layers in training on a GPU: fused, offloaded and computed again, they give the gradients of plain ones."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from openclaw_rl.model.elementwise import PLAIN, fused
from openclaw_rl.model.network import Network
from openclaw_rl.train.passes.activations import Keep, Kept
from openclaw_rl.train.passes.lora import LearnedLora
from openclaw_rl.train.passes.memory import WITH_HOST, bytes_per_token, free_bytes
from tests.factories.networks import causal, random_adapter, random_network, shape

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")
KEEPS: tuple[Keep, ...] = ("all", "attention", "nothing")
WIDE = {"hidden_size": 512, "mlp_size": 1536, "num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "num_layers": 8}


def test_kernels_are_compiled_here() -> None:
    assert fused() is not PLAIN


def gradient(network: Network, num_tokens: int, kept: Kept | None) -> Tensor:
    adapter = random_adapter(network.arch, device=CUDA)
    flat = adapter.flat.requires_grad_()
    ids_T = torch.arange(num_tokens, device=CUDA) % network.arch.vocab_size
    lora = LearnedLora(adapter.over(flat.to(network.dtype)))
    hidden_TH = network.hidden(ids_T, torch.arange(num_tokens, device=CUDA), causal, lora, kept)
    hidden_TH.backward(torch.linspace(-1, 2, hidden_TH.numel(), device=CUDA).view_as(hidden_TH))
    assert flat.grad is not None
    return flat.grad


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_gradients_are_those_of_plain_layers(family: Literal["llama", "qwen3"], keep: Keep, offload: bool) -> None:
    plain = random_network(shape(family), device=CUDA)
    compiled = random_network(shape(family), device=CUDA, is_fused=True)
    kept = Kept(keep=keep, offload=offload)
    for num_tokens in (50, 77):
        expected = gradient(plain, num_tokens, None)
        for network in (plain, compiled):
            found = gradient(network, num_tokens, kept)
            assert (found - expected).norm() < 1e-4 * expected.norm()


def flash(layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q_TND, k_TKD, v_TKD))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(len(q_TND), -1)


@pytest.mark.parametrize("kept", WITH_HOST)
def test_a_pass_takes_about_what_the_formula_says(kept: Kept) -> None:
    arch, num_tokens = shape("qwen3", **WIDE), 16_000
    network = random_network(arch, device=CUDA, dtype=torch.bfloat16, is_fused=True)
    adapter = random_adapter(arch, device=CUDA)
    flat = adapter.flat.requires_grad_()
    ids_T = torch.arange(num_tokens, device=CUDA) % arch.vocab_size
    free = taken = 0
    for _ in range(2):  # the first compiles
        free = free_bytes(CUDA)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        lora = LearnedLora(adapter.over(flat.to(network.dtype)))
        out_TH = network.hidden(ids_T, torch.arange(num_tokens, device=CUDA), flash, lora, kept)
        out_TH.backward(torch.ones_like(out_TH))
        del out_TH, lora
        taken = torch.cuda.max_memory_allocated() - before
    said = num_tokens * bytes_per_token(arch, kept, torch.bfloat16, learns_all=False, is_fused=True)
    assert 0.9 * taken < said < 1.6 * taken
    assert free > said

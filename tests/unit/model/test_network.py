from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from openclaw_rl.config import load_config
from openclaw_rl.model.files import resolve_model
from openclaw_rl.model.network import After, Attention, Before, DenseLinear, Network
from tests.factories.oracle import (
    KINDS,
    SeeOwnSequence,
    compute,
    load_network,
    make_model,
    save_network,
    see_all_before,
    some_ids,
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def network(kind: str, tmp_path: Path) -> Network:
    return save_network(make_model(kind), tmp_path)


@torch.inference_mode()
def test_logits_are_those_of_transformers(kind: str, network: Network) -> None:
    ids = some_ids(200)  # past the original context of the scaled ones
    expected = make_model(kind)(ids[None]).logits[0]
    torch.testing.assert_close(compute(network, ids), expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_the_embedded_model_gives_the_logits_of_transformers() -> None:
    folder = resolve_model(load_config().config.model).path
    ids = torch.tensor([1, 4093, 198, 19556, 28, 638, 359, 346, 47, 2, 198, 1, 520, 9531, 198])
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids[None]).logits[0]
    torch.testing.assert_close(compute(load_network(folder), ids), expected, atol=1e-4, rtol=1e-5)


class Growing:
    """One sequence that grows token by token: the keys and values of a layer are kept."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        if layer in self._kept:
            k_TKD, v_TKD = (torch.cat(pair) for pair in zip(self._kept[layer], (k_TKD, v_TKD), strict=True))
        self._kept[layer] = k_TKD, v_TKD
        q, k, v = (heads.transpose(0, 1)[None] for heads in (q_TND, k_TKD, v_TKD))
        out = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)


@torch.inference_mode()
def test_token_by_token_equals_all_at_once(network: Network) -> None:
    ids = some_ids(12)
    attend = Growing()
    steps = [network.hidden(ids[i : i + 1], torch.tensor([i]), attend) for i in range(len(ids))]
    torch.testing.assert_close(network.logits(torch.cat(steps)), compute(network, ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [[1, 1], [2, 1, 1], [3, 5], [8, 9, 16]], ids=str)
@torch.inference_mode()
def test_sequences_of_one_flat_batch_do_not_touch(network: Network, lengths: list[int]) -> None:
    """Sizes on both sides of every change of kernel."""
    sequences = [some_ids(length, seed=length) for length in lengths]
    positions = torch.cat([torch.arange(length) for length in lengths])
    hidden = network.hidden(torch.cat(sequences), positions, SeeOwnSequence(lengths))
    for got, ids in zip(network.logits(hidden).split(lengths), sequences, strict=True):
        torch.testing.assert_close(got, compute(network, ids), atol=1e-5, rtol=1e-5)


def test_a_layer_can_be_run_in_its_parts(network: Network) -> None:
    """Attention between two halves, each of which knows its layer."""
    ids = some_ids(9)
    inputs: list[Tensor] = []

    def run_layer(before: Before, attention: Attention, after: After, x_TH: Tensor) -> Tensor:
        inputs.append(x_TH)
        q_TND, k_TKD, v_TKD = before(x_TH)
        return after(x_TH, attention(q_TND, k_TKD, v_TKD))

    got = network.hidden(ids, torch.arange(9), see_all_before, None, run_layer)
    assert torch.equal(got, network.hidden(ids, torch.arange(9), see_all_before))
    assert len(inputs) == network.arch.num_layers


@torch.inference_mode()
def test_far_positions_turn_as_in_transformers(kind: str, network: Network) -> None:
    positions = torch.tensor([0, 1, 4_000, 131_071])
    cos, sin = network.rope(positions)
    half = network.arch.head_dim // 2
    assert (cos.shape, sin.shape, cos.dtype) == ((4, half), (4, half), torch.float32)
    expected = make_model(kind).model.rotary_emb(torch.zeros(1), positions[None])
    for got, want in zip((cos, sin), expected, strict=True):
        torch.testing.assert_close(torch.cat((got, got), -1), want[0], atol=1e-6, rtol=0)


def test_computing_with_gradients_gives_the_same(network: Network) -> None:
    """Autograd needs torch's own products; without it faster kernels may be chosen."""
    for length in (1, 2, 4, 7, 24):
        ids = some_ids(length)
        with_gradients = compute(network, ids)
        with torch.no_grad():
            torch.testing.assert_close(compute(network, ids), with_gradients, atol=1e-5, rtol=1e-5)


def test_every_weight_gets_the_gradient_of_transformers(kind: str, network: Network) -> None:
    ids = some_ids(10)
    model = make_model(kind)
    functional.cross_entropy(model(ids[None]).logits[0], ids).backward()
    layer = network.weights.layers[1]
    assert isinstance(layer.down, DenseLinear)
    trained = (network.weights.embedding, layer.input_norm, layer.down.weight)
    for tensor in trained:
        tensor.requires_grad_()
    functional.cross_entropy(compute(network, ids), ids).backward()
    theirs = model.model.embed_tokens, model.model.layers[1].input_layernorm, model.model.layers[1].mlp.down_proj
    for tensor, module in zip(trained, theirs, strict=True):
        torch.testing.assert_close(tensor.grad, module.weight.grad, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_logits_are_float32_whatever_the_activations_are(kind: str, network: Network, tmp_path: Path) -> None:
    double = load_network(tmp_path, torch.float64)
    assert double.dtype == torch.float64
    ids = some_ids(6)
    assert double.hidden(ids, torch.arange(6), see_all_before).dtype == torch.float64
    logits = compute(double, ids)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, compute(network, ids), atol=1e-5, rtol=1e-5)

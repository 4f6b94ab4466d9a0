"""Whatever is kept, computed again or sent away, the gradients are the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from openclaw_rl.model.network import After, Attention, Before
from openclaw_rl.train.passes.activations import Keep, Kept, offloaded
from openclaw_rl.train.passes.lora import DroppedLora, LearnedLora
from tests.factories.networks import causal, compiled, parameters_of, random_adapter, random_network, shape
from tests.factories.oracle import some_ids

FAMILIES: tuple[Literal["llama", "qwen3"], ...] = ("llama", "qwen3")
WAYS = [Kept(keep=keep, offload=offload) for keep in ("all", "attention", "nothing") for offload in (False, True)]
NUM_TOKENS = 13


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Literal["llama", "qwen3"]:
    given: Literal["llama", "qwen3"] = request.param
    return given


def loss(hidden_TH: Tensor) -> Tensor:
    return (hidden_TH * torch.linspace(-1, 2, hidden_TH.numel()).view_as(hidden_TH)).sum()


@pytest.mark.parametrize("kept", WAYS, ids=str)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_an_adapters_gradient_is_the_same(family: Literal["llama", "qwen3"], kept: Kept, share: float) -> None:
    network = random_network(shape(family))
    adapter = random_adapter(network.arch)

    def gradient(run_layer: Kept | None) -> Tensor:
        flat = adapter.flat.clone().requires_grad_()
        lora = LearnedLora(adapter.over(flat * 1))
        worn = DroppedLora(lora, share, 7) if share else lora
        loss(network.hidden(some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS), causal, worn, run_layer)).backward()
        assert flat.grad is not None
        return flat.grad

    plain = gradient(None)
    assert plain.count_nonzero() > 0.9 * sum(part.numel() for part in adapter.parameters())
    assert torch.equal(gradient(kept), plain)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # both are of torch, while it compiles
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_layers_can_be_computed_again_and_sent_away() -> None:
    network = random_network(shape("qwen3"))
    adapter = random_adapter(network.arch)

    def gradient(run_layer: Kept | None) -> Tensor:
        flat = adapter.flat.clone().requires_grad_()
        lora = LearnedLora(adapter.over(flat * 1))
        loss(network.hidden(some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS), causal, lora, run_layer)).backward()
        assert flat.grad is not None
        return flat.grad

    plain = gradient(None)
    network._elementwise = compiled()
    whole = gradient(None)
    torch.testing.assert_close(whole, plain, atol=1e-4, rtol=1e-4)
    for kept in WAYS:
        assert torch.equal(gradient(kept), whole), kept


@pytest.mark.parametrize("kept", WAYS, ids=str)
def test_every_weights_gradient_is_the_same(family: Literal["llama", "qwen3"], kept: Kept) -> None:
    def gradients(run_layer: Kept | None) -> dict[str, Tensor]:
        network = random_network(shape(family), learns=True)
        loss(network.hidden(some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS), causal, None, run_layer)).backward()
        found = {name: tensor.grad for name, tensor in parameters_of(network).items()}
        return {name: grad for name, grad in found.items() if grad is not None and grad.any()}

    plain, found = gradients(None), gradients(kept)
    assert len(plain) == 2 + 3 * (8 if family == "qwen3" else 6)
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)


class Counted:
    """Runs layers, and counts how often each half and attention run."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self.before = self.attention = self.after = 0

    def __call__(self, before: Before, attention: Attention, after: After, x_TH: Tensor) -> Tensor:
        def count_before(x_TH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            self.before += 1
            return before(x_TH)

        def count_attention(q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
            self.attention += 1
            return attention(q_TND, k_TKD, v_TKD)

        def count_after(x_TH: Tensor, attended: Tensor) -> Tensor:
            self.after += 1
            return after(x_TH, attended)

        return self._kept(count_before, count_attention, count_after, x_TH)


@pytest.mark.parametrize(
    ("keep", "again"), [("all", (0, 0, 0)), ("attention", (3, 0, 3)), ("nothing", (3, 3, 3))], ids=str
)
@pytest.mark.parametrize("offload", [False, True])
def test_only_what_is_not_kept_is_computed_again(keep: Keep, again: tuple[int, int, int], offload: bool) -> None:
    counted = Counted(Kept(keep=keep, offload=offload))
    network = random_network(shape("qwen3"), learns=True)
    hidden_TH = network.hidden(some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS), causal, None, counted)
    assert (counted.before, counted.attention, counted.after) == (3, 3, 3)
    loss(hidden_TH).backward()
    assert (counted.before - 3, counted.attention - 3, counted.after - 3) == again


@pytest.mark.parametrize("keep", ["all", "attention", "nothing"])
def test_without_gradient_nothing_is_kept_and_nothing_sent_away(keep: Keep) -> None:
    network = random_network(shape("llama"), learns=True)
    ids, positions = some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS)
    with torch.no_grad(), refusing():
        found = network.hidden(ids, positions, causal, None, Kept(keep=keep, offload=True))
        assert torch.equal(found, network.hidden(ids, positions, causal))
    assert not found.requires_grad


def refusing() -> torch.autograd.graph.saved_tensors_hooks:
    def pack(tensor: Tensor) -> Tensor:
        raise AssertionError("something was saved")

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("keep", ["attention", "nothing"])
def test_what_is_offloaded_leaves_the_device(keep: Keep, offload: bool) -> None:
    """Here the device is the host too: what counts is that nobody holds the original."""
    seen: list[StorageWeakRef] = []
    kept = Kept(keep=keep, offload=offload)

    def run_layer(before: Before, attention: Attention, after: After, x_TH: Tensor) -> Tensor:
        def watched(q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
            out = attention(q_TND, k_TKD, v_TKD)
            seen.extend(StorageWeakRef(x.untyped_storage()) for x in (q_TND, v_TKD, out))
            return out

        out_TH = kept(before, watched, after, x_TH)
        seen.append(StorageWeakRef(out_TH.untyped_storage()))
        return out_TH

    network = random_network(shape("qwen3"), learns=True)
    hidden_TH = network.hidden(some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS), causal, None, run_layer)
    inner = [ref.expired() for ref in seen[:-1]]  # the last layer's output is kept by the final norm
    kept_here = {"nothing": [True, True, True, False], "attention": [False] * 4}[keep]
    assert inner == ([True] * 11 if offload else (kept_here * 3)[:-1])
    loss(hidden_TH).backward()


@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.t(), lambda x: x[2:], lambda x: x[:, 1::2]],
    ids=("itself", "turned", "rows", "columns"),
)
def test_views_come_back_as_they_were(view: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    with offloaded(7):
        y = x * 2
        loss = view(y).square().sum() + (y * y).sum()
    loss.backward()
    expected = 16 * x.detach() / 2
    view(expected).mul_(2)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, expected)


def test_a_graph_that_is_retained_can_be_gone_through_again() -> None:
    x = torch.randn(5, 3, requires_grad=True)
    with offloaded(5):
        y = x.exp()
        total = (y * y * y).sum()
    (first,) = torch.autograd.grad(total, x, retain_graph=True)
    (second,) = torch.autograd.grad(total, x)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, 3 * (3 * x.detach()).exp())

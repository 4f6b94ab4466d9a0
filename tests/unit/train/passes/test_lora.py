"""An adapter that learns adds what `LoraRows` adds, and its gradient is what autograd makes of the plain formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from openclaw_rl.model.adapter import TARGETS, AdapterWeights, LoraRows
from openclaw_rl.model.architecture import MODULES, Module
from openclaw_rl.train.passes.lora import DroppedLora, LearnedLora
from tests.factories.networks import random_adapter, shape

SOME: tuple[tuple[str, ...], ...] = (TARGETS, ("q_proj", "v_proj", "down_proj"), ("k_proj", "up_proj"))
NUM_TOKENS = 11
ARCH = shape("llama")


def tensors(module: Module, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Input, output and the output's gradient of a projection."""
    generator = torch.Generator().manual_seed(tuple(MODULES).index(module))
    size_in = ARCH.projections(module)[0].in_features
    size_out = sum(part.out_features for part in ARCH.projections(module))
    sizes = (size_in, size_out, size_out)
    x, y, dy = (torch.randn(NUM_TOKENS, size, generator=generator, dtype=dtype) for size in sizes)
    return x, y, dy


@pytest.fixture(params=SOME, ids="+".join)
def adapter(request: pytest.FixtureRequest) -> AdapterWeights:
    return random_adapter(ARCH, targets=request.param)


@pytest.mark.parametrize("module", MODULES)
def test_it_adds_what_inference_adds(adapter: AdapterWeights, module: Module) -> None:
    x, y, _ = tensors(module)
    expected = LoraRows([(slice(0, NUM_TOKENS), adapter)]).add(1, module, x, y.clone())
    torch.testing.assert_close(LearnedLora(adapter).add(1, module, x, y.clone()), expected)


@pytest.mark.parametrize("module", MODULES)
def test_its_gradients_are_those_of_the_formula(adapter: AdapterWeights, module: Module) -> None:
    x, y, dy = tensors(module)

    def gradients(*, plainly: bool) -> list[Tensor]:
        flat = adapter.flat.clone().requires_grad_()
        views = adapter.over(flat * 1)
        leaves = [x.clone().requires_grad_(), y.clone().requires_grad_(), flat]
        out = leaves[1] * 1
        parts = views.parts(1, module)
        if not plainly:
            out = LearnedLora(views).add(1, module, leaves[0], out)
        elif parts is not None:
            for part in parts.parts:
                added = parts.scale * (leaves[0] @ parts.a[part.rank].t()) @ part.b.t()
                out = out + torch.nn.functional.pad(added, (part.out.start, out.shape[1] - part.out.stop))
        return list(torch.autograd.grad(out, leaves, dy, materialize_grads=True))

    for found, expected in zip(gradients(plainly=False), gradients(plainly=True), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("module", MODULES)
def test_its_gradient_is_exact(module: Module) -> None:
    adapter = random_adapter(ARCH, dtype=torch.float64)
    x, y, _ = tensors(module, torch.float64)

    def function(x: Tensor, y: Tensor, flat: Tensor) -> Tensor:
        return LearnedLora(adapter.over(flat * 1)).add(0, module, x, y * 1)

    flat = adapter.flat.clone()[: adapter.flat.numel()].requires_grad_()
    inputs = (x[:3].clone().requires_grad_(), y[:3].clone().requires_grad_(), flat)
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


def test_it_writes_in_place_and_makes_one_node() -> None:
    adapter = random_adapter(ARCH)
    views = adapter.over(adapter.flat.requires_grad_() * 1)
    x, y, _ = tensors("qkv")
    out = LearnedLora(views).add(0, "qkv", x, y)
    assert out.data_ptr() == y.data_ptr()
    assert out.grad_fn is not None
    assert "CopySlices" not in {type(node).__name__ for node, _ in out.grad_fn.next_functions if node is not None}
    assert type(out.grad_fn).__name__ == "_AddBackward"


def test_a_frozen_input_gets_no_gradient() -> None:
    """As in the first layer, in front of which nothing learns."""
    adapter = random_adapter(ARCH)
    flat = adapter.flat.clone().requires_grad_()
    x, y, dy = tensors("gate_up")
    LearnedLora(adapter.over(flat * 1)).add(0, "gate_up", x, y).backward(dy)
    assert flat.grad is not None
    assert flat.grad.any()
    assert x.grad is None


def test_nothing_learns_without_gradient() -> None:
    adapter = random_adapter(ARCH)
    views = adapter.over(adapter.flat.requires_grad_() * 1)
    x, y, _ = tensors("down")
    with torch.no_grad():
        assert not LearnedLora(views).add(0, "down", x, y).requires_grad


class Given:
    """A `Lora` that gives back what it was given."""

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("seed", [1, 1 << 70], ids=["small", "larger than a machine's integer"])
def test_dropout_drops_the_same_again_and_elsewhere_others(seed: int) -> None:
    x, y, _ = tensors("qkv")

    def dropped(seed: int, layer: int, module: Module = "qkv") -> Tensor:
        return DroppedLora(Given(), 0.5, seed).add(layer, module, x, y)

    assert torch.equal(dropped(seed, 0), dropped(seed, 0))
    assert set((dropped(seed, 0) / x).unique().tolist()) == {0.0, 2.0}
    for other in (dropped(seed + 1, 0), dropped(seed, 1), dropped(seed, 0, "gate_up")):
        assert not torch.equal(dropped(seed, 0), other)

"""Both makes of the element-wise functions compute the same, forward and backward, for any number of tokens."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from openclaw_rl.model import elementwise
from openclaw_rl.model.elementwise import PLAIN, Elementwise, fuse, fused

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch, while it compiles

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, EPS = 6, 2, 8, 1e-5


@pytest.fixture(scope="module")
def compiled() -> Elementwise:
    """Compiled as for a GPU, up to the kernels, which are torch's own."""
    return fuse("aot_eager")


def learning(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape) * 1000 + sum(shape))
    return (torch.randn(*shape, generator=generator) + 0.2).to(dtype).requires_grad_()


def runs(make: Elementwise, num_tokens: int, *, qk_norm: bool, dtype: torch.dtype) -> list[Tensor]:
    """Every output of every function, and the gradient of every input."""
    x, y, weight = (learning(*shape, dtype=dtype) for shape in ((num_tokens, 48), (num_tokens, 48), (48,)))
    qkv = learning(num_tokens, (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM, dtype=dtype)
    q_norm = learning(HEAD_DIM, dtype=dtype) if qk_norm else None
    k_norm = (learning(HEAD_DIM, dtype=dtype) * 2).detach().requires_grad_() if qk_norm else None
    angles = torch.arange(num_tokens)[:, None, None] * torch.linspace(0.1, 1, HEAD_DIM // 2)
    cos = torch.cat((angles.cos(), angles.cos()), -1).to(dtype)
    sin = torch.cat((-angles.sin(), angles.sin()), -1).to(dtype)
    gate_up = learning(num_tokens, 64, dtype=dtype)
    outputs = [
        make.norm(x, weight, EPS),
        *make.add_norm(x, y, weight, EPS),
        *make.turn(qkv, cos, sin, q_norm, k_norm, NUM_HEADS, NUM_KV_HEADS, EPS),
        make.gate(gate_up),
    ]
    inputs = [x, y, weight, qkv, gate_up, *(norm for norm in (q_norm, k_norm) if norm is not None)]
    pulls = [torch.linspace(-1, 1, out.numel(), dtype=dtype).view(out.shape) for out in outputs]
    return [*outputs, *torch.autograd.grad(outputs, inputs, pulls)]


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 2, 9, 33])
def test_both_makes_agree(compiled: Elementwise, num_tokens: int, qk_norm: bool) -> None:
    found = runs(compiled, num_tokens, qk_norm=qk_norm, dtype=torch.float32)
    expected = runs(PLAIN, num_tokens, qk_norm=qk_norm, dtype=torch.float32)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


def test_narrow_numbers_stay_narrow_and_are_computed_wide(compiled: Elementwise) -> None:
    narrow = runs(compiled, 9, qk_norm=True, dtype=torch.bfloat16)
    wide = runs(PLAIN, 9, qk_norm=True, dtype=torch.float32)
    plain = runs(PLAIN, 9, qk_norm=True, dtype=torch.bfloat16)
    for got, wanted, other in zip(narrow, wide, plain, strict=True):
        assert got.dtype == torch.bfloat16
        assert (got - wanted).norm() <= 1.05 * (other - wanted).norm() + 1e-3 * wanted.norm()


def test_values_are_their_own_when_fused(compiled: Elementwise) -> None:
    """Else keeping them would keep the whole projection."""
    qkv, ones = learning(5, (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM), torch.ones(5, 1, HEAD_DIM)
    for part in compiled.turn(qkv, ones, ones, None, None, NUM_HEADS, NUM_KV_HEADS, EPS):
        assert part.is_contiguous()
        assert part.untyped_storage().nbytes() == part.nbytes


def test_another_number_of_tokens_compiles_nothing_anew() -> None:
    torch._dynamo.reset()
    make = fuse("eager")
    runs(make, 10, qk_norm=True, dtype=torch.float32)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for num_tokens in (11, 64, 48, 500):  # one of them the hidden size
            runs(make, num_tokens, qk_norm=True, dtype=torch.float32)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would work")
def test_what_cannot_be_compiled_is_plain_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    fused.cache_clear()
    with caplog.at_level(logging.WARNING, logger=elementwise.__name__):
        assert fused() is PLAIN
        assert fused() is PLAIN
    (record,) = caplog.records
    assert "not fused" in record.getMessage()
    fused.cache_clear()

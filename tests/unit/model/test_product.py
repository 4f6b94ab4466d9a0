from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from openclaw_rl.model.product import choose_product, multiply_on_amd

ROWS = [1, 2, 3, 4, 5, 8, 17, 64]
SHAPES = [(6, 8), (1, 576), (96, 768), (40, 1536), (33, 2048)]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("out_features", "in_features"), SHAPES)
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a torch without oneDNN")
@torch.inference_mode()
def test_every_way_of_multiplying_is_exact(rows: int, out_features: int, in_features: int) -> None:
    """Whatever this machine would choose."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, in_features, generator=generator)
    weight = torch.randn(out_features, in_features, generator=generator)
    exact = x.double() @ weight.double().t()
    for product in (multiply_on_amd, choose_product(weight)):
        got = product(x, weight)
        assert got.is_contiguous()
        torch.testing.assert_close(got.double(), exact, atol=2e-4, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_gradients_flow_where_they_are_wanted(rows: int) -> None:
    x, weight = torch.randn(rows, 12, requires_grad=True), torch.randn(5, 12)
    (gradient,) = torch.autograd.grad(multiply_on_amd(x, weight).sum(), x)
    torch.testing.assert_close(gradient, weight.sum(0).expand(rows, -1))


def test_other_precisions_go_to_torch() -> None:
    assert choose_product(torch.zeros(2, 2, dtype=torch.bfloat16)) is functional.linear
    assert choose_product(torch.zeros(2, 2, device="meta")) is functional.linear

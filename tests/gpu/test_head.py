"""The head on a GPU: Triton's rows against torch's, and both against whole logits in float32.

On a machine without CUDA these tests run under Triton's interpreter, if it is asked for (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from openclaw_rl.train.head.chunks import Chunks, TorchChunks
from openclaw_rl.train.head.rows import FusedRows, HeadWeights, chunks_for
from openclaw_rl.train.objective.rows import Rows
from tests.unit.train.head.heads import Case, answers, make_case

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CAN_RUN = DEVICE.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not CAN_RUN, reason="needs a CUDA device")]

HEADS: list[dict[str, Any]] = [{}, {"bias": True, "softcap": 4.0, "temperature": 0.7}]
NUM_TOKENS = [7, 1024, 5003]
"""Less than a tile, one tile, tiles and blocks that are not full."""


def triton_chunks(num_tokens: int) -> Chunks:
    """Small enough for several chunks of rows, and for several slabs of tokens on the way back."""
    from openclaw_rl.train.head.kernels import TritonChunks

    return TritonChunks(max_rows=8, max_bytes=4 * 8 * max(4, num_tokens // 3))


def case_of(num_tokens: int, dtype: torch.dtype, **head: Any) -> Case:
    return make_case(21, 40, num_tokens, dtype=dtype, device=DEVICE, **head)


def questions(case: Case) -> list[Callable[[Rows], Tensor]]:
    ids_RJ = case.ids(5)
    return [lambda rows: rows.logprob(ids_RJ), lambda rows: rows.entropy()]


def error(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
def test_in_float32_all_ways_are_one(num_tokens: int, head: dict[str, Any]) -> None:
    case = case_of(num_tokens, torch.float32, **head)
    for ask in questions(case):
        expected, expected_grads = answers(case, case.dense(), ask)
        for chunks in (triton_chunks(num_tokens), TorchChunks(max_rows=8)):
            found, grads = answers(case, case.fused(chunks), ask)
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
            for one, other in zip(grads, expected_grads, strict=True):
                assert error(one, other) < 1e-4


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
def test_in_bfloat16_answers_are_those_of_float32(num_tokens: int, head: dict[str, Any]) -> None:
    """The products of narrow numbers are not rounded: only gradients are, once on their way and once at their end."""
    case = case_of(num_tokens, torch.bfloat16, **head)
    for ask in questions(case):
        expected, expected_grads = answers(case, case.dense(), ask)
        for chunks in (triton_chunks(num_tokens), TorchChunks(max_rows=8)):
            found, grads = answers(case, case.fused(chunks), ask)
            torch.testing.assert_close(found, expected, atol=5e-5, rtol=1e-5)
            for leaf, one, other in zip(case.leaves, grads, expected_grads, strict=True):
                assert one.dtype == leaf.dtype
                assert error(one, other) < 2e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize(("num_tokens", "k"), [(7, 7), (1024, 4), (5003, 1), (5003, 4), (5003, 7), (5003, 40)])
def test_top_k_is_exact(num_tokens: int, k: int, head: dict[str, Any], dtype: torch.dtype) -> None:
    case = case_of(num_tokens, dtype, **head)
    rows = case.fused(triton_chunks(num_tokens))
    ids_RK, logprobs_RK = rows.top_k(k)
    _, expected_RK = case.dense().top_k(k)
    assert all(len(set(row)) == k for row in ids_RK.tolist())
    # By value, as tokens whose logits differ in the last bit may change places.
    torch.testing.assert_close(logprobs_RK, expected_RK, atol=5e-5, rtol=1e-5)
    assert torch.equal(logprobs_RK, rows.logprob(ids_RK))


def test_the_same_tokens_have_the_same_bits() -> None:
    case = case_of(1024, torch.bfloat16)
    rows = case.fused(triton_chunks(1024))
    ids_RJ = case.ids(5)
    with torch.no_grad():
        alone_R1 = rows.logprob(ids_RJ[:, :1])
    assert torch.equal(rows.logprob(ids_RJ)[:, :1], alone_R1)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="sizes for a GPU")
@pytest.mark.parametrize("learns", [False, True])
def test_a_large_head_in_bfloat16(learns: bool) -> None:
    """The sets of the best four are those of float32 logits, and a chunk is all the memory that it takes."""
    num_rows, num_dims, num_tokens = 3000, 512, 151_936
    torch.manual_seed(0)
    hidden_RH = torch.randn(num_rows, num_dims, device=DEVICE).bfloat16().requires_grad_()
    weight_VH = (torch.randn(num_tokens, num_dims, device=DEVICE) * 0.05).bfloat16().requires_grad_(learns)
    ids_RJ = torch.randint(num_tokens, (num_rows, 4), device=DEVICE)
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    rows = FusedRows(hidden_RH, HeadWeights(weight=weight_VH))
    best_RK, _ = rows.top_k(4)
    rows.logprob(ids_RJ).sum().backward()
    extra = torch.cuda.max_memory_allocated() - held - (weight_VH.nbytes if learns else 0)
    assert extra < 1 << 30
    assert type(chunks_for("cuda", torch.bfloat16)).__name__ == "TritonChunks"
    for start in range(0, num_rows, 500):
        logits_RV = hidden_RH[start : start + 500].detach().float() @ weight_VH.detach().float().T
        ids_RK = logits_RV.topk(5).indices
        values_RK = logits_RV.gather(-1, ids_RK)
        is_clear_R = values_RK[:, 3] - values_RK[:, 4] > 1e-4
        assert is_clear_R.float().mean() > 0.9
        expected_RK = ids_RK[:, :4].sort(-1).values
        assert torch.equal(best_RK[start : start + 500].sort(-1).values[is_clear_R], expected_RK[is_clear_R])

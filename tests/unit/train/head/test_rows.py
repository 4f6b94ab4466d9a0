"""Fused rows against those over a whole matrix of logits: answers, gradients, and what they never hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from openclaw_rl.train.head.chunks import Curve, TorchChunks
from openclaw_rl.train.head.rows import FusedRows, HeadWeights
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.objective.sample import Target
from openclaw_rl.train.objective.settings import Distillation, HintSelection, LossSettings, SubsetMode
from tests.unit.train.head.heads import Case, answers, make_case
from tests.unit.train.objective.cases import F64, Drawn, draw, settings

SMALL = TorchChunks(max_rows=4, max_bytes=4 * 8 * 13)
"""Four rows of 13 tokens in float64; whole rows of more tokens go in fewer at a time."""
HEADS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"bias": True},
    {"softcap": 2.0},
    {"bias": True, "softcap": 2.0, "temperature": 1.7},
]


def check(case: Case, chunks: TorchChunks | None, ids_RJ: Tensor) -> None:
    questions: list[Callable[[Rows], Tensor]] = [lambda rows: rows.logprob(ids_RJ), lambda rows: rows.entropy()]
    for ask in questions:
        expected, expected_grads = answers(case, case.dense(), ask)
        found, grads = answers(case, case.fused(chunks), ask)
        torch.testing.assert_close(found, expected)
        for one, other in zip(grads, expected_grads, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("num_rows", [0, 1, 3, 4, 5, 8, 11])
def test_answers_and_gradients_are_those_of_whole_logits(head: dict[str, Any], num_rows: int) -> None:
    case = make_case(num_rows, **head)
    check(case, SMALL, case.ids(3))


@given(st.data())
def test_random_sizes(data: st.DataObject) -> None:
    case = make_case(
        data.draw(st.integers(0, 12), label="rows"),
        data.draw(st.integers(1, 20), label="dims"),
        data.draw(st.integers(1, 400), label="tokens"),
        seed=data.draw(st.integers(0, 10**6), label="seed"),
        bias=data.draw(st.booleans(), label="bias"),
        softcap=data.draw(st.sampled_from([None, 1.5]), label="softcap"),
        temperature=data.draw(st.sampled_from([0.5, 1.0, 2.0]), label="temperature"),
    )
    # From one row of one token to everything at once, with slabs that are rounded and some that are not.
    num_bytes = data.draw(st.integers(1, 8 * 12 * 400), label="bytes")
    chunks = TorchChunks(max_rows=data.draw(st.integers(1, 13), label="chunk"), max_bytes=num_bytes)
    check(case, chunks, case.ids(data.draw(st.integers(1, 5), label="asked")))


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_gradients_of_products_may_be_narrower_than_these(
    head: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: products of some tokens at a time, gradients of many."""
    monkeypatch.setattr("openclaw_rl.train.head.rows._Passes._grad_dtype", torch.float32)
    case = make_case(11, 6, 900, **head)
    ids_RJ = case.ids(3)
    _, expected = answers(case, case.dense(), lambda rows: rows.logprob(ids_RJ))
    chunks = TorchChunks(max_rows=4, max_bytes=4 * 8 * 400)
    _, found = answers(case, case.fused(chunks), lambda rows: rows.logprob(ids_RJ))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_hidden_states_get_float32_answers(dtype: torch.dtype) -> None:
    case = make_case(7, 24, 20_000, bias=True, temperature=0.8, dtype=dtype)
    ids_RJ = case.ids(2)
    expected, expected_grads = answers(case, case.dense(), lambda rows: rows.logprob(ids_RJ))
    found, grads = answers(case, case.fused(), lambda rows: rows.logprob(ids_RJ))
    assert found.dtype == case.fused().entropy().dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    for leaf, one, other in zip(case.leaves, grads, expected_grads, strict=True):
        assert one.dtype == leaf.dtype
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_gradcheck(head: dict[str, Any]) -> None:
    case = make_case(5, 4, 17, **head)
    ids_RJ = case.ids(2)

    def rows(hidden_RH: Tensor, weight_VH: Tensor, bias_V: Tensor | None = None) -> FusedRows:
        weights = HeadWeights(weight=weight_VH, bias=bias_V, softcap=case.head.softcap)
        return FusedRows(hidden_RH, weights, case.temperature, chunks=SMALL)

    assert torch.autograd.gradcheck(lambda *leaves: rows(*leaves).logprob(ids_RJ), case.leaves)
    assert torch.autograd.gradcheck(lambda *leaves: rows(*leaves).entropy(), case.leaves)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("k", [1, 4, 31])
def test_top_k_is_that_of_whole_logits(head: dict[str, Any], k: int) -> None:
    case = make_case(11, **head)
    rows = case.fused(SMALL)
    ids_RK, logprobs_RK = rows.top_k(k)
    expected_ids_RK, expected_RK = case.dense().top_k(k)
    assert torch.equal(ids_RK, expected_ids_RK)
    torch.testing.assert_close(logprobs_RK, expected_RK)
    assert torch.equal(logprobs_RK, rows.logprob(ids_RK))
    assert not logprobs_RK.requires_grad


@given(st.data())
def test_the_same_tokens_have_the_same_bits(data: st.DataObject) -> None:
    """Alone, beside others, with and without gradient, before and after other questions: a ratio of 1 is exactly 1."""
    case = make_case(
        data.draw(st.integers(1, 40), label="rows"),
        data.draw(st.integers(1, 300), label="dims"),
        data.draw(st.integers(8, 50), label="tokens"),
        seed=data.draw(st.integers(0, 10**6), label="seed"),
        dtype=torch.float32,
        temperature=data.draw(st.sampled_from([1.0, 0.7]), label="temperature"),
        softcap=data.draw(st.sampled_from([None, 3.0]), label="softcap"),
    )
    rows = case.fused(replace(SMALL, max_rows=data.draw(st.integers(1, 13), label="chunk")))
    ids_RJ = case.ids(data.draw(st.integers(1, 9), label="asked"))
    with torch.no_grad():
        alone_R1 = rows.logprob(ids_RJ[:, :1])
    if data.draw(st.booleans(), label="top-k between"):
        rows.top_k(8)
    beside_RJ = rows.logprob(ids_RJ)
    assert beside_RJ.requires_grad
    assert not alone_R1.requires_grad
    assert torch.equal(beside_RJ[:, :1], alone_R1)
    assert torch.equal(rows.logprob(ids_RJ.flip(-1)).flip(-1), beside_RJ)


def test_a_certain_token_is_not_more_than_certain() -> None:
    case = make_case(64, 300, 2, dtype=torch.float32)
    hidden_RH = case.hidden.detach() * 40
    logprobs_RK = FusedRows(hidden_RH, case.head).logprob(torch.tensor([[0, 1]] * 64))
    assert logprobs_RK.max() == 0


def test_a_token_that_its_bias_forbids_adds_nothing() -> None:
    case = make_case(3, bias=True)
    bias_V = case.head.bias
    assert bias_V is not None
    with torch.no_grad():
        bias_V[5] = -math.inf
    rows = case.fused(SMALL)
    assert (rows.logprob(torch.full((3, 1), 5)) < -1e29).all()
    entropy_R, grads = answers(case, rows, lambda asked: asked.entropy())
    torch.testing.assert_close(entropy_R, case.dense().entropy())
    assert all(grad.isfinite().all() for grad in grads)


@dataclass(frozen=True)
class CountingChunks(TorchChunks):
    """Chunks that remember for which k they were asked about how many rows."""

    passes: list[tuple[int, int]] = field(default_factory=list)

    def stats(self, products_CV: Tensor, curve: Curve, k: int) -> tuple[Tensor, Tensor]:
        self.passes.append((len(products_CV), k))
        return super().stats(products_CV, curve, k)


def test_one_pass_answers_top_k_and_all_that_follows() -> None:
    chunks = CountingChunks()
    rows = make_case(9).fused(chunks)
    assert chunks.passes == []
    rows.top_k(4)
    rows.top_k(2)
    rows.logprob(torch.zeros(9, 1, dtype=torch.int64))
    rows.entropy()
    assert chunks.passes == [(9, 4)]
    rows.top_k(5)
    assert chunks.passes == [(9, 4), (9, 5)]


class UnsteadyChunks(CountingChunks):
    """Chunks whose sums come out differently every time, as they may on a GPU."""

    def stats(self, products_CV: Tensor, curve: Curve, k: int) -> tuple[Tensor, Tensor]:
        lse_C, ids_CK = super().stats(products_CV, curve, k)
        return lse_C + 1e-6 * len(self.passes), ids_CK


def test_a_later_pass_changes_no_answer() -> None:
    case = make_case(9)
    rows = case.fused(UnsteadyChunks())
    before_RJ = rows.logprob(case.ids(2))
    rows.top_k(3)
    assert torch.equal(rows.logprob(case.ids(2)), before_RJ)


class Sizes(TorchDispatchMode):
    """Remembers the largest tensor that any operation put out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.largest = max([self.largest, *(one.numel() for one in tree_leaves(found) if isinstance(one, Tensor))])
        return found


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_no_tensor_is_larger_than_a_chunk(head: dict[str, Any]) -> None:
    case = make_case(200, 2, 500, **head)
    ids_RJ = case.ids(3)

    def ask(rows: Rows) -> None:
        rows.top_k(4)
        (rows.logprob(ids_RJ).sum() + rows.entropy().sum()).backward()

    with Sizes() as sizes:
        ask(case.dense())
    assert sizes.largest >= 200 * 500
    with Sizes() as sizes:
        ask(case.fused(TorchChunks(max_rows=16, max_bytes=8 * 16 * 128)))
    assert sizes.largest <= 16 * 128


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_RH": torch.zeros(3, 5)}, r"hidden states are \[R, 4\]"),
        ({"hidden_RH": torch.zeros(3, 4, dtype=F64)}, "one dtype"),
        ({"temperature": 0.0}, "temperature is larger than 0"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"hidden_RH": torch.zeros(3, 4), "head": HeadWeights(weight=torch.zeros(6, 4)), "temperature": 1.0}
    with pytest.raises(ValueError, match=message):
        FusedRows(**{**given, **changes})


def test_heads_and_questions_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="a bias each"):
        HeadWeights(weight=torch.zeros(6, 4), bias=torch.zeros(4))
    with pytest.raises(ValueError, match="softcap is larger than 0"):
        HeadWeights(weight=torch.zeros(6, 4), softcap=0.0)
    rows = FusedRows(torch.zeros(3, 4), HeadWeights(weight=torch.zeros(6, 4)))
    for k in (0, 7):
        with pytest.raises(ValueError, match="top_k is 1 to 6"):
            rows.top_k(k)


CELLS = list(itertools.product(get_args(SubsetMode), get_args(HintSelection), get_args(Distillation)))


@pytest.mark.parametrize(("mode", "selection", "distillation"), CELLS)
def test_the_whole_loss_is_that_over_whole_logits(
    mode: SubsetMode, selection: HintSelection, distillation: Distillation
) -> None:
    chosen = settings(
        subset_mode=mode, hint_selection=selection, distillation=distillation, kl_coef=0.1, entropy_coef=0.1
    )
    for seed in range(3):
        drawn = draw(seed, num_tokens=9)
        loss_R, grads = hybrid(drawn, chosen, SMALL)
        expected_R, expected_grads = hybrid(drawn, chosen, None)
        torch.testing.assert_close(loss_R, expected_R)
        for one, other in zip(grads, expected_grads, strict=True):
            assert other.abs().max() > 0
            torch.testing.assert_close(one, other)


def hybrid(drawn: Drawn, chosen: LossSettings, chunks: TorchChunks | None) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Loss and gradients where a policy of hidden states and weights has the drawn logits; None: over whole logits."""
    everybody = torch.cat((drawn.new, drawn.old, drawn.base, *drawn.teachers))
    left, sizes, right = torch.linalg.svd(everybody, full_matrices=False)
    weight_VH = right.T.contiguous().requires_grad_()
    hidden = [part.clone().requires_grad_() for part in (left * sizes).split(len(drawn.new))]

    def rows(hidden_RH: Tensor) -> Rows:
        if chunks is None:
            return DenseRows(hidden_RH @ weight_VH.T)
        return FusedRows(hidden_RH, HeadWeights(weight=weight_VH), chunks=chunks)

    loss = HybridLoss(chosen)
    new_RH, old_RH, base_RH, *teachers = hidden
    taught = [rows(teacher_RH) for teacher_RH in teachers[: loss.num_teachers(drawn.tensors)]]
    target: Target = loss.target(rows(old_RH), drawn.tensors, teachers=taught, base=rows(base_RH))
    loss_R, _ = loss(rows(new_RH), drawn.tensors, target)
    return loss_R.detach(), torch.autograd.grad(loss_R.sum(), (new_RH, weight_VH))

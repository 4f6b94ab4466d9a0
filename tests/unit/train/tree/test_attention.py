"""Attention in parts against a dense masked softmax: outputs and the gradients of queries, keys and values."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.train.passes.plain import PackedAttention
from openclaw_rl.train.tree.attention import TreeAttention
from openclaw_rl.train.tree.fold import Path
from openclaw_rl.train.tree.kernels import Bucketed, CpuKernel, Kernels
from tests.unit.train.tree.trees import Grown, PlainShort, dense, laid_out, random_heads, random_tree, size, visible

CPU = torch.device("cpu")
NESTED = laid_out(Grown(9, {4: [Grown(5, {3: [Grown(2), Grown(1)]}), Grown(3)], 9: [Grown(2)]}), Grown(4))


def attend(paths: Sequence[Path], heads: tuple[Tensor, Tensor, Tensor], kernels: Kernels | None = None) -> Tensor:
    return TreeAttention(paths, device=CPU, dtype=heads[0].dtype, kernels=kernels)(0, *heads)


def gradients(out: Tensor, heads: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.autograd.grad(out, heads, weights.to(out.dtype))


def assert_dense(
    paths: Sequence[Path],
    heads: tuple[Tensor, Tensor, Tensor],
    *,
    kernels: Kernels | None = None,
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> None:
    wide = tuple(x.detach().double().requires_grad_() for x in heads)
    q, k, v = wide
    out, right = attend(paths, heads, kernels), dense(q, k, v, visible(paths))
    torch.testing.assert_close(out.double(), right, rtol=rtol, atol=atol)
    for got, expected, x in zip(gradients(out, heads), gradients(right, (q, k, v)), heads, strict=True):
        assert got.dtype == x.dtype
        torch.testing.assert_close(got.double(), expected, rtol=rtol, atol=atol)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    heads=st.sampled_from(((1, 1), (2, 2), (4, 2), (6, 2), (4, 1))),
    head_dim=st.sampled_from((1, 8, 20)),
)
def test_any_tree_is_a_dense_softmax(seed: int, heads: tuple[int, int], head_dim: int) -> None:
    paths = random_tree(seed)
    tensors = random_heads(size(paths), num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, seed=seed)
    assert_dense(paths, tensors)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    buckets=st.sampled_from(((4, 2, 3), (8, 16, 5), (1, 1, 2))),
    min_rows=st.sampled_from((0, 4, 100)),
)
def test_buckets_change_nothing(seed: int, buckets: tuple[int, int, int], min_rows: int) -> None:
    """As on a GPU: lengths filled up, the keys left over in front of a path's own, short triangles together."""
    triangle_bucket, query_bucket, key_bucket = buckets
    kernels = Kernels(
        long=Bucketed(CpuKernel(), triangle_bucket=triangle_bucket, query_bucket=query_bucket),
        short=PlainShort,
        min_rows=min_rows,
        key_bucket=key_bucket,
        groups_heads=False,
    )
    paths = random_tree(seed)
    assert_dense(paths, random_heads(size(paths), seed=seed), kernels=kernels)


class OnlyWhole:
    """A kernel that refuses every shape but whole buckets of 8 rows and 4 keys."""

    def __init__(self) -> None:
        self._kernel = CpuKernel()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        assert_whole(q, k, causal)
        return self._kernel.forward(q, k, v, causal=causal)

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert_whole(q, k, causal)
        return self._kernel.backward(dout, q, k, v, out, lse, causal=causal)


def assert_whole(q: Tensor, k: Tensor, causal: bool) -> None:
    assert len(q) % 8 == 0
    assert len(k) == len(q) if causal else len(k) % 4 == 0


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_a_bucketed_kernel_sees_few_shapes(seed: int) -> None:
    long = Bucketed(OnlyWhole(), triangle_bucket=8, query_bucket=8)
    kernels = Kernels(long=long, short=PlainShort, min_rows=6, key_bucket=4, groups_heads=False)
    paths = random_tree(seed, max_length=30)
    assert_dense(paths, random_heads(size(paths), seed=seed), kernels=kernels)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_in_float32_too(seed: int) -> None:
    paths = random_tree(seed, max_length=40)
    assert_dense(paths, random_heads(size(paths), dtype=torch.float32, seed=seed), rtol=1e-4, atol=2e-5)


def test_scores_that_differ_much_between_parts_are_merged() -> None:
    """Keys of one part outweigh those of another by e^200: exponents are never taken alone."""
    paths = laid_out(Grown(3, {2: [Grown(2)]}))
    q, k, v = random_heads(5, num_heads=1, num_kv_heads=1, head_dim=4)
    with torch.no_grad():
        q.fill_(10.0)
        k[:3], k[3:] = -10.0, 10.0
    torch.testing.assert_close(attend(paths, (q, k, v))[3], v[3, 0])
    assert_dense(paths, (q, k, v))


def test_the_gradient_is_the_slope() -> None:
    heads = random_heads(size(NESTED), head_dim=3)
    assert torch.autograd.gradcheck(lambda *x: attend(NESTED, x), heads)


def test_bfloat16_is_as_good_as_reading_each_sequence_alone() -> None:
    """Whoever reads a branch alone reads what leads to it, too: the same rows, in one softmax."""
    stem, branch = 60, 30
    paths = laid_out(Grown(80, {stem: [Grown(branch), Grown(branch)]}))
    heads = random_heads(size(paths), dtype=torch.bfloat16)
    q, k, v = (x.detach().double() for x in heads)
    rows = torch.tensor([*range(stem), *range(80, 80 + branch)])
    right = dense(q, k, v, visible(paths))[rows]
    alone = PackedAttention([len(rows)])(0, *(x[rows] for x in heads))
    assert relative(attend(paths, heads)[rows], right) < 1.5 * relative(alone, right)


def test_a_key_that_many_branches_see_gets_all_of_their_gradient() -> None:
    """Of 300 additions of about 1/300 most would add nothing to a sum in bfloat16 (errors of 0.02)."""
    paths = laid_out(Grown(300, {at: [Grown(1)] for at in range(1, 301)}))
    _, _, dk, dv = bfloat16_errors(paths)
    assert max(dk, dv) < 0.008


def test_a_query_that_sees_many_paths_is_rounded_once() -> None:
    """At each of 60 additions in bfloat16 the output would be off by 0.005, the gradient by 0.008."""
    tree = Grown(1)
    for _ in range(60):
        tree = Grown(1, {1: [tree]})
    out, dq, _, _ = bfloat16_errors(laid_out(tree))
    assert out < 0.003
    assert dq < 0.0055


def bfloat16_errors(paths: Sequence[Path]) -> list[float]:
    """Of the output and the gradients of queries, keys, values; relative to float64."""
    heads = random_heads(size(paths), dtype=torch.bfloat16)
    q, k, v = (x.detach().double().requires_grad_() for x in heads)
    out, right = attend(paths, heads), dense(q, k, v, visible(paths))
    got, expected = (out, *gradients(out, heads)), (right, *gradients(right, (q, k, v)))
    return [relative(x, y) for x, y in zip(got, expected, strict=True)]


def relative(x: Tensor, right: Tensor) -> float:
    return float(((x.double() - right).norm() / right.norm()).detach())


@pytest.mark.parametrize("lengths", [(7,), (5, 1, 9)], ids=["one", "several"])
def test_independent_sequences_are_what_they_are_packed(lengths: tuple[int, ...]) -> None:
    """Bit by bit: nothing is merged."""
    heads = random_heads(sum(lengths), dtype=torch.float32)
    out, packed = attend(laid_out(*map(Grown, lengths)), heads), PackedAttention(lengths)(0, *heads)
    assert torch.equal(out, packed)
    for got, expected in zip(gradients(out, heads), gradients(packed, heads), strict=True):
        assert torch.equal(got, expected)


class InPlace(PlainShort):
    """Wants the tensors of the whole batch, not copies of their rows."""

    heads: ClassVar[tuple[Tensor, Tensor, Tensor]]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
        for x, whole in zip((q, k, v), self.heads, strict=True):
            assert x.data_ptr() == whole.data_ptr()
        return super().forward(q, k, v, causal=causal)


def test_short_independent_sequences_are_taken_where_they_lie() -> None:
    InPlace.heads = random_heads(12, num_heads=2, num_kv_heads=2)
    kernels = Kernels(long=CpuKernel(), short=InPlace, min_rows=100, groups_heads=True)
    assert attend(laid_out(Grown(5), Grown(3), Grown(4)), InPlace.heads, kernels).shape == (12, 16)


@pytest.mark.parametrize("paths", [NESTED, laid_out(Grown(6))], ids=["tree", "chain"])
def test_without_gradient_the_output_is_the_same_and_nothing_is_kept(paths: list[Path]) -> None:
    heads = random_heads(size(paths))
    attention = TreeAttention(paths, device=CPU, dtype=torch.float64)
    with torch.no_grad():
        q = heads[0] * 1.0
        out = attention(0, q, *heads[1:])
    gone = weakref.ref(q)
    del q
    gc.collect()
    assert gone() is None
    assert not out.requires_grad
    assert torch.equal(out, attention(0, *heads))


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    q, k, v = random_heads(size(NESTED))
    attend(NESTED, (q.detach(), k.detach(), v)).sum().backward()
    assert v.grad is not None
    torch.testing.assert_close(v.grad.sum(), torch.tensor(8.0 * 4 * size(NESTED), dtype=torch.float64))


def test_one_object_serves_every_layer_and_pass() -> None:
    attention = TreeAttention(NESTED, device=CPU, dtype=torch.float64)
    first, second = random_heads(size(NESTED), seed=1), random_heads(size(NESTED), seed=2)
    outs = attention(0, *first), attention(1, *second)
    for heads, out in zip((first, second), outs, strict=True):
        assert torch.equal(out, attend(NESTED, heads))
        for got, expected in zip(gradients(out, heads), gradients(attend(NESTED, heads), heads), strict=True):
            assert torch.equal(got, expected)

"""Attention over a tree on a GPU against a dense softmax in float32, and against reading every path alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from openclaw_rl.train.passes.plain import PackedAttention
from openclaw_rl.train.tree.attention import TreeAttention
from openclaw_rl.train.tree.fold import Path
from openclaw_rl.train.tree.kernels import KEY_BUCKET, MIN_ROWS, QUERY_BUCKET, TRIANGLE_BUCKET, FlashKernel
from tests.unit.train.tree.trees import Grown, PlainShort, dense, laid_out, random_heads, random_tree, size, visible

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")
HEAD_DIM = 64
Heads = tuple[Tensor, Tensor, Tensor]

TREES = {
    "keys within a bucket": laid_out(Grown(900, {700: [Grown(50), Grown(60)]})),
    "keys of a bucket": laid_out(
        Grown(MIN_ROWS, {KEY_BUCKET: [Grown(QUERY_BUCKET)], 2 * KEY_BUCKET: [Grown(QUERY_BUCKET - 1), Grown(1)]})
    ),
    "around a bucket": laid_out(
        Grown(MIN_ROWS + 1, {KEY_BUCKET - 1: [Grown(3)], KEY_BUCKET + 1: [Grown(QUERY_BUCKET + 1)]})
    ),
    "a long branch": laid_out(Grown(2500, {1500: [Grown(2100, {1100: [Grown(40)], 2100: [Grown(1)]})]})),
    "a branch that fills a bucket": laid_out(Grown(2000, {1500: [Grown(3 * TRIANGLE_BUCKET - 1500 % KEY_BUCKET)]})),
    "single tokens": laid_out(Grown(1, {1: [Grown(1), Grown(1, {1: [Grown(1)]})]}), Grown(1)),
    "roots": laid_out(Grown(5), Grown(2048), Grown(1), Grown(300), Grown(2100)),
    "short paths around a long one": laid_out(Grown(7, {7: [Grown(2), Grown(2200), Grown(9)]})),
    "nested": random_tree(5, max_length=900, max_depth=4, num_roots=2),
}


def heads_of(paths: Sequence[Path], dtype: torch.dtype) -> Heads:
    return random_heads(size(paths), num_heads=4, num_kv_heads=2, head_dim=HEAD_DIM, dtype=dtype, device=CUDA)


def attend(paths: Sequence[Path], heads: Heads) -> Tensor:
    attention = TreeAttention(paths, device=CUDA, dtype=heads[0].dtype, head_dim=HEAD_DIM)
    return attention(0, *heads)


def alone(paths: Sequence[Path], heads: Heads, dtype: torch.dtype) -> Tensor:
    """Every path behind all that leads to it, as a sequence of its own; of each only the path's rows count."""
    outs = []
    for path in sorted(paths, key=lambda path: path.start):
        rows, below = list(range(path.start, path.stop)), path
        while below.parent is not None:
            above = paths[below.parent]
            rows, below = [*range(above.start, above.start + below.offset), *rows], above
        index = torch.tensor(rows, device=CUDA)
        outs.append(PackedAttention([len(rows)])(0, *(x[index].to(dtype) for x in heads))[-len(path) :])
    return torch.cat(outs)


def results(out: Tensor, heads: Heads) -> tuple[Tensor, ...]:
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return (out, *torch.autograd.grad(out, heads, weights))


def wide(heads: Heads) -> Heads:
    q, k, v = (x.detach().float().requires_grad_() for x in heads)
    return q, k, v


def errors(got: Sequence[Tensor], right: Sequence[Tensor]) -> list[float]:
    return [float((x.detach().float() - y).norm() / y.norm().clamp(min=1e-6)) for x, y in zip(got, right, strict=True)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", TREES)
def test_it_is_as_good_as_reading_every_path_alone(name: str, dtype: torch.dtype) -> None:
    """Output and gradients; those of the paths add up in float32."""
    paths = TREES[name]
    heads = heads_of(paths, dtype)
    exact, added = wide(heads), wide(heads)
    right = [x.detach() for x in results(dense(*exact, visible(paths).to(CUDA)), exact)]
    baseline = errors(results(alone(paths, added, dtype), added), right)
    for error, base in zip(errors(results(attend(paths, heads), heads), right), baseline, strict=True):
        # Each part is rounded to the narrow type before it is merged.
        assert error < max(1.4 * base, 1e-3)


@pytest.mark.parametrize("name", TREES)
def test_in_float32_it_is_a_dense_softmax(name: str) -> None:
    paths = TREES[name]
    heads = heads_of(paths, torch.float32)
    exact = wide(heads)
    right = [x.detach() for x in results(dense(*exact, visible(paths).to(CUDA)), exact)]
    assert max(errors(results(attend(paths, heads), heads), right)) < 2e-5


@pytest.mark.parametrize("lengths", [((5, 130), (5, 700)), ((1, 1, 1), (1, 9, 200)), ((300, 1), (301, 64))])
def test_short_parts_see_the_keys_before_their_own(lengths: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    num_queries, num_keys = lengths
    q = random_heads(sum(num_queries), head_dim=HEAD_DIM, dtype=torch.bfloat16, device=CUDA, seed=1)[0].detach()
    _, k, v = (x.detach() for x in random_heads(sum(num_keys), head_dim=HEAD_DIM, dtype=q.dtype, device=CUDA, seed=2))
    out, lse = FlashKernel(num_queries, num_keys, device=CUDA).forward(q, k, v, causal=True)
    cpu = [x.float().cpu().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (q, k, v)]
    right, right_lse = PlainShort(num_queries, num_keys).forward(cpu[0], cpu[1], cpu[2], causal=True)
    assert errors([out.cpu()], [right])[0] < 5e-3
    torch.testing.assert_close(lse.cpu(), right_lse, rtol=1e-4, atol=1e-4)


def test_without_gradient_and_computed_again_it_is_the_same() -> None:
    paths = TREES["a long branch"]
    heads = heads_of(paths, torch.bfloat16)
    attention = TreeAttention(paths, device=CUDA, dtype=torch.bfloat16, head_dim=HEAD_DIM)
    kept = results(attention(0, *heads), heads)
    with torch.no_grad():
        assert torch.equal(attention(0, *heads), kept[0])
    again = results(checkpoint(attention, 0, *heads, use_reentrant=False), heads)
    assert torch.equal(again[0], kept[0])
    # Gradients of keys are added up in no fixed order.
    assert max(errors(again, [x.detach().float() for x in kept])) < 1e-2

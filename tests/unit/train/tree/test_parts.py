"""The parts of a tree are what its tokens see: nothing twice, nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.tree.fold import Path
from openclaw_rl.train.tree.parts import Block, Parts, Triangle, parts_of
from tests.unit.train.tree.trees import Grown, laid_out, random_tree, size, visible


def times_seen(parts: Parts, num_tokens: int) -> torch.Tensor:
    """[T, T], in how many parts a row's token sees a column's."""
    seen = torch.zeros(num_tokens, num_tokens, dtype=torch.int64)
    for triangle in parts.triangles:
        for row in triangle.rows:
            seen[row, triangle.rows.start : row + 1] += 1
            for rows in triangle.before:
                seen[row, rows.start : rows.stop] += 1
    for block in parts.blocks:
        seen[block.queries.start : block.queries.stop, block.keys.start : block.keys.stop] += 1
    return seen


@given(seed=st.integers(0, 2**32), key_bucket=st.sampled_from((1, 2, 4, 100)))
def test_every_token_sees_what_leads_to_it_once(seed: int, key_bucket: int) -> None:
    paths = random_tree(seed)
    parts = parts_of(paths, key_bucket=key_bucket)
    seen = times_seen(parts, size(paths))
    assert torch.equal(seen, visible(paths).long())
    assert all(len(block.keys) % key_bucket == 0 and len(block.keys) > 0 for block in parts.blocks)


@given(seed=st.integers(0, 2**32), key_bucket=st.sampled_from((1, 4)))
def test_the_triangles_hold_every_row_once_in_order(seed: int, key_bucket: int) -> None:
    paths = random_tree(seed)
    triangles = parts_of(paths, key_bucket=key_bucket).triangles
    assert [row for one in triangles for row in one.rows] == list(range(size(paths)))


@given(seed=st.integers(0, 2**32), key_bucket=st.sampled_from((1, 4)))
def test_the_most_parts_of_a_row_are_counted(seed: int, key_bucket: int) -> None:
    paths = random_tree(seed)
    parts = parts_of(paths, key_bucket=key_bucket)
    asked = [1 + sum(row in block.queries for block in parts.blocks) for row in range(size(paths))]
    assert parts.most == max(asked)


def test_branches_at_one_token_are_one_block_with_all_that_leaves_them() -> None:
    paths = laid_out(Grown(10, {6: [Grown(3, {2: [Grown(4)]}), Grown(2)], 8: [Grown(5)]}))
    assert parts_of(paths) == Parts(
        triangles=tuple(
            Triangle(rows=rows) for rows in (range(10), range(10, 13), range(13, 17), range(17, 19), range(19, 24))
        ),
        blocks=(
            Block(queries=range(10, 19), keys=range(6)),
            Block(queries=range(13, 17), keys=range(10, 12)),
            Block(queries=range(19, 24), keys=range(8)),
        ),
        most=3,
    )


def test_keys_behind_the_last_whole_bucket_go_in_front_of_the_branches_own() -> None:
    paths = laid_out(Grown(10, {7: [Grown(3, {2: [Grown(4)]})]}))
    parts = parts_of(paths, key_bucket=4)
    assert parts.blocks == (Block(queries=range(10, 17), keys=range(4)),)
    assert parts.triangles == (
        Triangle(rows=range(10)),
        Triangle(rows=range(10, 13), before=(range(4, 7),)),
        Triangle(rows=range(13, 17), before=(range(4, 7), range(10, 12))),
    )


def test_roots_have_no_block() -> None:
    parts = parts_of(laid_out(Grown(3), Grown(1), Grown(4)), key_bucket=2)
    assert parts.blocks == ()
    assert parts.most == 1
    assert [one.before for one in parts.triangles] == [(), (), ()]


@pytest.mark.parametrize(
    "child",
    [
        Path(start=4, stop=6, end=6, parent=0, offset=0),
        Path(start=4, stop=6, end=6, parent=0, offset=5),
    ],
    ids=["before its first token", "behind its last"],
)
def test_a_branch_leaves_its_parent_at_a_token(child: Path) -> None:
    with pytest.raises(AssertionError, match="has no token"):
        parts_of([Path(start=0, stop=4, end=6, parent=None, offset=0), child])


def test_branches_of_one_token_lie_beside_each_other() -> None:
    leaving = [
        Path(start=start, stop=start + 1, end=start + 1, parent=0, offset=at) for start, at in ((4, 2), (5, 3), (6, 2))
    ]
    with pytest.raises(AssertionError, match="beside"):
        parts_of([Path(start=0, stop=4, end=7, parent=None, offset=0), *leaving])

"""A tree's paths -> the triangles and rectangles of attention between ranges of rows. Knows no tensor.

A token sees its own path up to itself (a triangle) and, of every path above, the beginning that its branch left from.
All branches that leave a path at the same token lie beside each other, with everything that leaves them, so what they
see of that path is one full rectangle:

            keys   root              a     b       queries
    root           ◣
    a              ■■■■■■■■■■        ◣             a and b leave the root at the same token: one block for both
    b              ■■■■■■■■■■              ◣

Where kernels want their keys in whole buckets, a block stops at the last whole one, and each path of its branches
takes the few keys behind that in front of its own (`Triangle.before`): they are seen in full as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openclaw_rl.train.tree.fold import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Triangle:
    """Every row sees all rows of `before`, and `rows` up to itself."""

    rows: range
    before: tuple[range, ...] = ()

    @property
    def num_keys(self) -> int:
        return len(self.rows) + sum(map(len, self.before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Every query sees every key."""

    queries: range
    keys: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The triangles hold each row of the batch once, in order; `most` is in how many parts one row asks at most."""

    triangles: tuple[Triangle, ...]
    blocks: tuple[Block, ...]
    most: int


def parts_of(paths: Sequence[Path], *, key_bucket: int = 1) -> Parts:
    """What attention over the paths has to compute. The keys of each block are a multiple of the bucket."""
    blocks: list[Block] = []
    for (parent, offset), queries in _attached(paths).items():
        start = paths[parent].start
        if keys := range(start, start + offset // key_bucket * key_bucket):
            blocks.append(Block(queries=queries, keys=keys))
    triangles = [
        Triangle(rows=range(path.start, path.stop), before=_before(paths, path, key_bucket))
        for path in sorted(paths, key=lambda path: path.start)
    ]
    return Parts(triangles=tuple(triangles), blocks=tuple(blocks), most=_most(blocks))


def _attached(paths: Sequence[Path]) -> dict[tuple[int, int], range]:
    """By parent and offset, the rows of all subtrees that leave there."""
    rows: dict[tuple[int, int], range] = {}
    for path in sorted(paths, key=lambda path: path.start):
        if path.parent is None:
            continue
        assert 0 < path.offset <= len(paths[path.parent]), f"{path} leaves its parent where that has no token"
        point = (path.parent, path.offset)
        before = rows.get(point, range(path.start, path.start))
        assert before.stop == path.start, f"{path} does not lie beside what leaves at the same token"
        rows[point] = range(before.start, path.end)
    return rows


def _before(paths: Sequence[Path], path: Path, key_bucket: int) -> tuple[range, ...]:
    """What blocks leave over of every path above, from the root on."""
    left: list[range] = []
    while path.parent is not None:
        parent = paths[path.parent]
        if rest := path.offset % key_bucket:
            left.append(range(parent.start + path.offset - rest, parent.start + path.offset))
        path = parent
    return tuple(reversed(left))


def _most(blocks: Sequence[Block]) -> int:
    """One for the triangle, and the blocks that lie upon each other at the deepest place."""
    turns = sorted(
        (row, turn) for block in blocks for row, turn in ((block.queries.start, 1), (block.queries.stop, -1))
    )
    depth = most = 0
    for _, turn in turns:
        depth += turn
        most = max(most, depth)
    return 1 + most

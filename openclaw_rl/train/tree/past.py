"""What frozen weights computed before -> less to compute: the keys and values of a beginning that comes again.

The next turn of a conversation begins with all of those before it, and every conversation with the same system prompt.
For weights that never move, keys and values of that beginning are what they were. A tree whose root begins with what is
remembered is cut: the beginning is left out, and everything that follows sees it as one more block. Never with
gradient. Knows no reader and no sample.

Axes: T tokens, N query heads, K key/value heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from openclaw_rl.train.passes.sequences import Ints
from openclaw_rl.train.tree.attention import TreeAttention
from openclaw_rl.train.tree.fold import Path, Tree, num_equal

MIN_TOKENS = 64
"""Less is computed again sooner than it is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Past:
    """A beginning: its tokens, and for each layer their keys and values [T, K, D]."""

    ids: Ints
    keys: Sequence[Tensor]
    values: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """`tree` without the first `num_known` tokens of one of its roots; `root` is where that one is now."""

    tree: Tree
    root: Path
    num_known: int


def cut(tree: Tree, past: Past | None) -> Cut:
    """The tree without what is known of it: of its longest root, or of none."""
    index = max((at for at, one in enumerate(tree.paths) if one.parent is None), key=lambda at: len(tree.paths[at]))
    root = tree.paths[index]
    known = 0 if past is None else num_equal(past.ids, tree.ids[root.start : root.stop])
    # Whatever leaves the root, or is asked about, must lie behind the cut.
    leaving = [path.offset - 1 for path in tree.paths if path.parent == index]
    asked = [
        int(rows[(rows >= root.start) & (rows < root.stop)].min(initial=root.stop)) - root.start for rows in tree.rows
    ]
    known = min([known, len(root) - 1, *leaving, *asked])
    if known < MIN_TOKENS:
        return Cut(tree=tree, root=root, num_known=0)

    def moved(path: Path) -> Path:
        shift = known if path.start > root.start else 0
        offset = path.offset - known if path.parent == index else path.offset
        end = path.end - known if path.end > root.start else path.end
        stop = path.stop - known if path.stop > root.start else path.stop
        return replace(path, start=path.start - shift, stop=stop, end=end, offset=offset)

    left = np.r_[0 : root.start, root.start + known : len(tree)]
    paths = tuple(map(moved, tree.paths))
    shifted = tuple(np.where(rows >= root.start, rows - known, rows) for rows in tree.rows)
    return Cut(
        tree=Tree(ids=tree.ids[left], positions=tree.positions[left], paths=paths, rows=shifted),
        root=paths[index],
        num_known=known,
    )


class Recalling:
    """`network.Attend` over a cut tree. `past` afterwards, if it remembers: the root, with what was known of it."""

    def __init__(self, cut: Cut, past: Past | None, attention: TreeAttention, *, remembers: bool) -> None:
        self._remembers = remembers
        self._cut = cut
        self._past = past
        self._attention = attention
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        root, num = self._cut.root, self._cut.num_known
        keys, values = k_TKD[root.start : root.stop], v_TKD[root.start : root.stop]
        if self._past is None or not num:
            if self._remembers:
                self._keys.append(keys.clone())
                self._values.append(values.clone())
            return self._attention(layer, q_TND, k_TKD, v_TKD)
        known_keys, known_values = self._past.keys[layer][:num], self._past.values[layer][:num]
        if self._remembers:
            self._keys.append(torch.cat((known_keys, keys)))
            self._values.append(torch.cat((known_values, values)))
        rows = range(root.start, root.end)
        return self._attention.behind(q_TND, k_TKD, v_TKD, rows, known_keys, known_values)

    def past(self, tree: Tree) -> Past:
        """Of the tree as it was before it was cut."""
        size = len(self._cut.root) + self._cut.num_known
        start = self._cut.root.start
        return Past(ids=tree.ids[start : start + size], keys=self._keys, values=self._values)

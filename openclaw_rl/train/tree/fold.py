"""Sequences -> a tree of tokens: equal beginnings are there once, and whatever differs is a branch.

The tree is cut into paths. A path is a run of tokens that follow each other; its children begin behind one of its
tokens. Tokens lie in the batch path by path: first the path itself, then the subtrees that leave it, those that leave
it at the same token beside each other. So everything that sees the same beginning lies in one piece, and so does what
it sees: attention needs no index, only ranges (parts.py).

    head ─ question ─ answer ─ question ─ answer        one path, as long as nothing is stripped from the history
             │          └ (thinking, stripped later)    a branch
             ├ hint 1 ─ answer                          branches that leave at the same token
             └ hint 2 ─ answer

Knows no network, no sample and no tensor library but numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from openclaw_rl.train.passes.sequences import Ints, Sequenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Tokens `start` to `stop` of the batch; its subtree, itself included, ends before `end`.

    It sees itself up to each token, `offset` tokens of its parent (an index into the tree's paths), and what that
    parent's beginning sees. A path without a parent is a root.
    """

    start: int
    stop: int
    end: int
    parent: int | None
    offset: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tree:
    """A batch, in the order in which its tokens are computed."""

    ids: Ints
    positions: Ints
    """How many tokens each one has before it."""
    paths: tuple[Path, ...]
    rows: tuple[Ints, ...]
    """For each sequence the tokens of the batch that its response tokens are predicted from."""

    def __len__(self) -> int:
        return len(self.ids)


class Fold:
    """Grows a tree, sequence by sequence."""

    def __init__(self, sequences: Iterable[Sequenced] = ()) -> None:
        self._root = _Edge(np.empty(0, np.int64))
        self._read: list[Sequenced] = []
        for sequence in sequences:
            self.add(sequence)

    def add(self, sequence: Sequenced) -> int:
        """How many tokens it brought that were not there yet."""
        self._read.append(sequence)
        return self._root.insert(sequence.ids)

    def tree(self) -> Tree:
        layout = _Layout()
        for root in self._root.children.values():
            layout.place(root, parent=None, offset=0, depth=0)
        return Tree(
            ids=_joined([edge.ids for edge in layout.edges]),
            positions=_joined([np.arange(depth, depth + len(edge.ids)) for edge, depth in layout.depths()]),
            paths=tuple(layout.paths),
            rows=tuple(layout.places(self._root, one.ids)[-len(one.response_ids) :] for one in self._read),
        )


class _Edge:
    """Tokens that nothing leaves but at their end; `children` by the token they begin with."""

    __slots__ = ("children", "ids")

    def __init__(self, ids: Ints) -> None:
        self.ids = ids
        self.children: dict[int, _Edge] = {}

    def along(self, ids: Ints) -> Iterable[tuple[_Edge, int]]:
        """The edges below this one that the sequence runs along, and how many tokens of each it shares."""
        edge = self
        while len(ids) and (child := edge.children.get(int(ids[0]))) is not None:
            num = num_equal(child.ids, ids)
            yield child, num
            if num < len(child.ids):
                return
            edge, ids = child, ids[num:]

    def insert(self, ids: Ints) -> int:
        """How many tokens were new."""
        edge, num = self, 0
        for child, shared in self.along(ids):
            edge, num = child, num + shared
            if shared < len(child.ids) and num < len(ids):
                child.split(shared)
        if num < len(ids):
            rest = ids[num:]
            if edge is not self and not edge.children:
                edge.ids = np.concatenate((edge.ids, rest))
            else:
                edge.children[int(rest[0])] = _Edge(rest)
        return len(ids) - num

    def split(self, num: int) -> None:
        rest = _Edge(self.ids[num:])
        rest.children = self.children
        self.ids, self.children = self.ids[:num], {int(rest.ids[0]): rest}


class _Layout:
    """Edges -> places in the batch."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.edges: list[_Edge] = []
        self._starts: dict[_Edge, tuple[int, int]] = {}
        """Where each edge begins in the batch, and how deep."""
        self._lengths: dict[_Edge, int] = {}
        self._num = 0

    def place(self, edge: _Edge, *, parent: int | None, offset: int, depth: int) -> None:
        """An edge and all that follows: the longest way down is a path, what leaves it are paths of their own."""
        index, start, leaving = len(self.paths), self._num, list[tuple[_Edge, int]]()
        self.paths.append(Path(start=start, stop=start, end=start, parent=parent, offset=offset))
        following: _Edge | None = edge
        while following is not None:
            self._starts[following] = (self._num, depth + self._num - start)
            self.edges.append(following)
            self._num += len(following.ids)
            children = list(following.children.values())
            following = max(children, key=self._length, default=None)
            leaving += [(child, self._num - start) for child in children if child is not following]
        stop = self._num
        for child, at in leaving:
            self.place(child, parent=index, offset=at, depth=depth + at)
        self.paths[index] = Path(start=start, stop=stop, end=self._num, parent=parent, offset=offset)

    def _length(self, edge: _Edge) -> int:
        """Tokens of the longest way down. With a stack: a conversation may have been left at a thousand tokens."""
        waiting = [edge]
        while waiting:
            if unknown := [one for one in waiting[-1].children.values() if one not in self._lengths]:
                waiting += unknown
                continue
            known = waiting.pop()
            below = max((self._lengths[one] for one in known.children.values()), default=0)
            self._lengths[known] = len(known.ids) + below
        return self._lengths[edge]

    def depths(self) -> Iterable[tuple[_Edge, int]]:
        return ((edge, self._starts[edge][1]) for edge in self.edges)

    def places(self, root: _Edge, ids: Ints) -> Ints:
        """Where in the batch a sequence's tokens are."""
        starts = ((self._starts[edge][0], num) for edge, num in root.along(ids))
        return _joined([np.arange(start, start + num) for start, num in starts])


def num_equal(one: Ints, other: Ints) -> int:
    """How many tokens two sequences have in common at their beginning."""
    num = min(len(one), len(other))
    differing = np.flatnonzero(one[:num] != other[:num])
    return int(differing[0]) if len(differing) else num


def _joined(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)

"""Zeroes what no row uses in a database file: copies that rows left behind when they moved to other pages.

`PRAGMA secure_delete` overwrites a row where it is deleted. But whenever SQLite balances a tree it copies rows from
page to page, and what stood there before stays in the gap between a page's pointers and its rows. These bytes belong
to nobody, so they are zeroed in the file itself, under a connection that is closed and a log that is empty. A page that
is torn by a power cut meanwhile reads the same: the rows in it are written as they were.

Knows the file format (sqlite.org/fileformat2.html) and no table.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Self

from openclaw_rl.errors import StoreError

_LEAVES = (10, 13)
"""The first byte of a tree's page that has no children: of an index, of a table."""
_NODES = (2, 5)


@dataclass(slots=True)
class Layout:
    """The pages of trees and the free ones as they were at a moment, each behind the page that names it: its node (0
    for the root of a tree), or its trunk in the list of free pages.

    Pages on which a long row goes on are in neither: SQLite writes these whole.
    """

    in_trees: array[int] = field(default_factory=lambda: array("I"))
    free: array[int] = field(default_factory=lambda: array("I"))
    nodes: dict[int, int] = field(default_factory=dict)
    """Each node of a tree, and the one above it."""

    def pages(self) -> Iterator[tuple[int, int, bool]]:
        """Page, what names it, and whether it is in a tree."""
        for named, is_in_tree in ((self.in_trees, True), (self.free, False)):
            for at in range(0, len(named), 2):
                yield named[at + 1], named[at], is_in_tree


class DatabaseFile:
    """The pages of a database that no connection of this process has open, and whose log is empty."""

    def __init__(self, path: Path, roots: Sequence[int]) -> None:
        """`roots` are the first pages of its trees."""
        self._roots = roots
        self._children: dict[int, frozenset[int]] = {}
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(self._file, 100, 0)
            if len(head) < 100 or head[:16] != b"SQLite format 3\0":
                raise StoreError(f"{path} is no SQLite database")
            size, reserved = int.from_bytes(head[16:18], "big"), head[20]
            self._page_size = 65536 if size == 1 else size
            self._usable = self._page_size - reserved
            self._first_trunk = int.from_bytes(head[32:36], "big")
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._file)

    def layout(self) -> Layout:
        """Reads the nodes of the trees, and of the leaves one in each tree: all leaves are equally deep."""
        found = Layout()
        for root in self._roots:
            found.in_trees.extend((0, root))
            level = {root: 0}
            while self._read(first := next(iter(level)))[_start(first)] in _NODES:
                found.nodes |= level
                below: dict[int, int] = {}
                for node in level:
                    children = self._named_by_node(node)
                    found.in_trees += _pairs(node, children)
                    below |= dict.fromkeys(children, node)
                level = below
        for trunk, leaves in self._trunks.items():
            found.free += _pairs(trunk, (trunk, *leaves))
        return found

    def holds(self, page: int, above: int, nodes: dict[int, int]) -> bool:
        """Whether this page is still where it was in its tree: only what hangs on a root is known to hold rows."""
        if above == 0:
            return page in self._roots
        if above not in self._children:
            is_node = above in nodes and self.holds(above, nodes[above], nodes)
            self._children[above] = frozenset(self._named_by_node(above) if is_node else ())
        return page in self._children[above]

    def is_free(self, page: int, trunk: int) -> bool:
        return trunk in self._trunks and (page == trunk or page in self._trunks[trunk])

    def scrub(self, pages: Iterable[tuple[int, bool]]) -> int:
        """Zeroes what is unused in pages of trees (True) and free ones; in how many there was something.

        On disk when it returns.
        """
        changed = 0
        for number, is_in_tree in pages:
            page = bytearray(self._read(number))
            unused = self._unused_in_tree(number, page) if is_in_tree else self._unused_if_free(number, page)
            dirty = [(start, end) for start, end in unused if page.count(0, start, end) != end - start]
            for start, end in dirty:
                page[start:end] = bytes(end - start)
            if dirty:
                os.pwrite(self._file, page, (number - 1) * self._page_size)
                changed += 1
        if changed:
            os.fsync(self._file)
        return changed

    def _named_by_node(self, number: int) -> tuple[int, ...]:
        """Its children; none if it is a leaf now."""
        page, start = self._read(number), _start(number)
        if page[start] not in _NODES:
            return ()
        (count,) = struct.unpack_from(">H", page, start + 3)
        cells = struct.unpack_from(f">{count}H", page, start + 12)
        named = b"".join([page[cell : cell + 4] for cell in cells]) + page[start + 8 : start + 12]
        return struct.unpack(f">{count + 1}I", named)

    @cached_property
    def _trunks(self) -> dict[int, frozenset[int]]:
        """The list of free pages: each trunk names others and the next trunk."""
        found: dict[int, frozenset[int]] = {}
        trunk = self._first_trunk
        while trunk and trunk not in found:
            page = self._read(trunk)
            following, count = struct.unpack_from(">II", page)
            found[trunk] = frozenset(struct.unpack_from(f">{count}I", page, 8))
            trunk = following
        return found

    def _unused_in_tree(self, number: int, page: bytearray) -> Iterator[tuple[int, int]]:
        """The gap between a page's pointers and its rows, and the blocks that rows have left."""
        start = _start(number)
        kind = page[start]
        block, count, content = struct.unpack_from(">HHH", page, start + 1)
        pointers = start + (12 if kind in _NODES else 8)
        end, content = pointers + 2 * count, content or 65536
        if kind not in (*_LEAVES, *_NODES) or not end <= content <= self._usable:
            raise _damaged(number)
        if count and min(struct.unpack_from(f">{count}H", page, pointers)) < content:
            raise _damaged(number)
        yield end, content
        end = content
        while block:
            following, size = struct.unpack_from(">HH", page, block) if end <= block <= self._usable - 4 else (0, 0)
            end = block + size
            if size < 4 or end > self._usable:
                raise _damaged(number)
            yield block + 4, end
            block = following

    def _unused_if_free(self, number: int, page: bytearray) -> Iterator[tuple[int, int]]:
        """A trunk names others at its beginning, and holds nothing else."""
        yield 8 + 4 * len(self._trunks[number]) if number in self._trunks else 0, self._page_size

    def _read(self, number: int) -> bytes:
        page = os.pread(self._file, self._page_size, (number - 1) * self._page_size)
        if len(page) != self._page_size:
            raise StoreError(f"the store ends before its page {number}")
        return page


class Scrubbing:
    """Goes over a database part by part; between two parts others may write, if deleting overwrites what it deletes.

    A page that was gone over once stays clean: what comes onto it later are rows that live. A page that leaves its tree
    is overwritten by SQLite. So it is done when every page has been seen that was there at the beginning, or is nowhere
    now. To know a page of a tree from one that merely looks so, it is found again from the root; those that have moved
    meanwhile are looked for at the end.
    """

    def __init__(self) -> None:
        self.num_changed = 0
        self._layout: Layout | None = None
        self._left: Iterator[tuple[int, int, bool]] = iter(())
        self._moved: set[int] = set()

    def go_on(self, path: Path, roots: Sequence[int], *, max_pages: int) -> bool:
        """One part; True when it was the last one."""
        with DatabaseFile(path, roots) as file:
            if self._layout is None:
                self._layout = file.layout()
                self._left = self._layout.pages()
            part = list(islice(self._left, max_pages))
            if not part and self._moved:
                self._look_for_moved(file)
                part = list(islice(self._left, max_pages))
            found: list[tuple[int, bool]] = []
            for page, named_by, is_in_tree in part:
                is_there = (
                    file.holds(page, named_by, self._layout.nodes) if is_in_tree else file.is_free(page, named_by)
                )
                if is_there:
                    found.append((page, is_in_tree))
                else:
                    self._moved.add(page)
            self.num_changed += file.scrub(found)
        return len(part) < max_pages and not self._moved

    def _look_for_moved(self, file: DatabaseFile) -> None:
        self._layout, moved = file.layout(), self._moved
        self._left = (one for one in self._layout.pages() if one[0] in moved)
        self._moved = set()


def _pairs(above: int, pages: Collection[int]) -> array[int]:
    pairs = array("I", [above]) * (2 * len(pages))
    pairs[1::2] = array("I", pages)
    return pairs


def _start(number: int) -> int:
    """Where the head of a tree's page begins: on the first page behind the head of the file."""
    return 100 if number == 1 else 0


def _damaged(number: int) -> StoreError:
    return StoreError(f"page {number} of the store is damaged")

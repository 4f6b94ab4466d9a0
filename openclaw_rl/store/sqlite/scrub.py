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
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from openclaw_rl.errors import StoreError

_LEAVES = (10, 13)
"""The first byte of a tree's page that has no children: of an index, of a table."""
_NODES = (2, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which page is what at a moment: pages of trees hold rows, free ones nothing; overflow pages are neither here."""

    trees: Set[int]
    trunks: Set[int]
    """Free pages that name other free pages."""
    free: Set[int]

    @property
    def pages(self) -> set[int]:
        return {*self.trees, *self.trunks, *self.free}


class DatabaseFile:
    """The pages of a database that no connection of this process has open, and whose log is empty."""

    def __init__(self, path: Path) -> None:
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

    def layout(self, roots: Iterable[int]) -> Layout:
        """Reads the nodes of the trees, and of the leaves one in each tree: all leaves are equally deep."""
        trees = {page for root in roots for page in self._tree(root)}
        trunks, free = set[int](), set[int]()
        trunk = self._first_trunk
        while trunk and trunk not in trunks:
            trunks.add(trunk)
            page = self._read(trunk)
            trunk, count = struct.unpack_from(">II", page)
            free.update(struct.unpack_from(f">{count}I", page, 8))
        return Layout(trees=trees, trunks=trunks, free=free)

    def scrub(self, layout: Layout, pages: Iterable[int]) -> int:
        """Zeroes what is unused in these pages, and returns in how many there was something. On disk when it returns."""
        changed = 0
        for number in pages:
            page = bytearray(self._read(number))
            unused = self._unused(number, page) if number in layout.trees else self._unused_free(page, number, layout)
            dirty = [(start, end) for start, end in unused if page.count(0, start, end) != end - start]
            for start, end in dirty:
                page[start:end] = bytes(end - start)
            if dirty:
                os.pwrite(self._file, page, (number - 1) * self._page_size)
                changed += 1
        if changed:
            os.fsync(self._file)
        return changed

    def _tree(self, root: int) -> Iterator[int]:
        level = [root]
        while level:
            yield from level
            if self._read(level[0])[_start(level[0])] in _LEAVES:
                return
            level = [child for number in level for child in self._children(number)]

    def _children(self, number: int) -> Iterator[int]:
        page, start = self._read(number), _start(number)
        if page[start] not in _NODES:
            raise StoreError(f"page {number} of the store is no node of a tree")
        (count,) = struct.unpack_from(">H", page, start + 3)
        for cell in struct.unpack_from(f">{count}H", page, start + 12):
            yield int.from_bytes(page[cell : cell + 4], "big")
        yield int.from_bytes(page[start + 8 : start + 12], "big")

    def _unused(self, number: int, page: bytearray) -> Iterator[tuple[int, int]]:
        """Of a page of a tree: the gap between its pointers and its rows, and the blocks that rows have left."""
        start = _start(number)
        kind = page[start]
        if kind not in (*_LEAVES, *_NODES):
            raise StoreError(f"page {number} of the store is no page of a tree")
        block, count, content = struct.unpack_from(">HHH", page, start + 1)
        pointers = start + (12 if kind in _NODES else 8)
        end = pointers + 2 * count
        content = content or 65536
        rows = struct.unpack_from(f">{count}H", page, pointers)
        if not end <= content <= self._usable or (rows and min(rows) < content):
            raise StoreError(f"page {number} of the store is damaged")
        yield end, content
        end = content
        while block:
            following, size = struct.unpack_from(">HH", page, block) if end <= block <= self._usable - 4 else (0, 0)
            end = block + size
            if size < 4 or end > self._usable:
                raise StoreError(f"page {number} of the store is damaged")
            yield block + 4, end
            block = following

    def _unused_free(self, page: bytearray, number: int, layout: Layout) -> Iterator[tuple[int, int]]:
        if number in layout.trunks:
            (count,) = struct.unpack_from(">I", page, 4)
            yield 8 + 4 * count, self._usable
        elif number in layout.free:
            yield 0, self._page_size

    def _read(self, number: int) -> bytes:
        page = os.pread(self._file, self._page_size, (number - 1) * self._page_size)
        if len(page) != self._page_size:
            raise StoreError(f"the store ends before its page {number}")
        return page


class Scrubbing:
    """Goes over a database part by part; between two parts others may write, if deleting overwrites what it deletes.

    A page that was gone over once stays clean: what comes onto it later are rows that live. A page that leaves its tree
    is overwritten by SQLite. So it is done when every page has been seen that was there at the beginning.
    """

    def __init__(self) -> None:
        self._left: set[int] | None = None
        self.num_changed = 0

    def go_on(self, path: Path, roots: Iterable[int], *, max_pages: int) -> bool:
        """One part; True when it was the last one."""
        with DatabaseFile(path) as file:
            layout = file.layout(roots)
            self._left = layout.pages if self._left is None else self._left & layout.pages
            part = sorted(self._left)[:max_pages]
            self.num_changed += file.scrub(layout, part)
            self._left.difference_update(part)
        return not self._left


def _start(number: int) -> int:
    """Where the head of a tree's page begins: on the first page behind the head of the file."""
    return 100 if number == 1 else 0

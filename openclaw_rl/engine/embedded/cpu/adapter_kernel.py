"""The kernel for adapters, compiled for this CPU in a tenth of a second. Knows no torch, no files and no layers."""

from __future__ import annotations

import ctypes
import random
import struct
from array import array

from openclaw_rl.engine.embedded.cpu.adapter_code import ENTRY_WORDS, MAX_ROWS, UNIT_WORDS, adapter_text
from openclaw_rl.engine.embedded.cpu.compiling import compiled, openmp_fork
from openclaw_rl.model.tiles import BLOCK, LANES


class AdapterKernel:
    """The compiled kernel. Many threads may call it at once."""

    def __init__(self) -> None:
        self._compiled = compiled(lambda _: adapter_text())  # owns the machine code: must outlive its callers
        self._fork = openmp_fork()
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 4, ctypes.c_void_p, ctypes.c_int)
        self._adapt = prototype(self._compiled.get_function_address("adapt"))

    def add(
        self, units: array[int], entry: int, x: int, y: int, *, in_features: int, out_features: int, num_threads: int
    ) -> None:
        """y [rows, out] += what the adapters of `units` make of x [rows, in], dense fp32; pointers as numbers.

        The projection is at `entry` of the adapters' tables; see `adapter_code` for what units and tables are.
        """
        address, num_words = units.buffer_info()
        num = num_words // UNIT_WORDS
        fork = self._fork if num_threads > 1 and num > 1 else 0
        self._adapt(address, x, y, entry, num, in_features, out_features, fork, num_threads)


def unit(table: array[int], *, rank: int, first_row: int, num_rows: int, scale: float) -> tuple[int, ...]:
    """The words of one. `table` must outlive the call."""
    (bits,) = struct.unpack("<I", struct.pack("<f", scale))
    return table.buffer_info()[0], rank, first_row, num_rows, bits


def adapter_is_right(kernel: AdapterKernel) -> bool:
    """Whether rows with two adapters, of which one has parts of odd places and ranks, come out as in plain Python."""
    numbers = random.Random(0)
    num_in, num_out, num_rows = 2 * BLOCK, 3 * LANES, MAX_ROWS + 1

    def draw(num: int) -> ctypes.Array[ctypes.c_float]:
        return (ctypes.c_float * num)(*(numbers.gauss(0, 1) for _ in range(num)))

    x, y = draw(num_rows * num_in), draw(num_rows * num_out)
    before = list(y)
    adapters = [(5, [(0, LANES), (2 * LANES, LANES)]), (4, [(0, num_out)])]
    rows_of = [range(MAX_ROWS), range(MAX_ROWS, num_rows)]
    expected, words, held = list(before), list[int](), list[object]()
    tables: list[array[int]] = []
    for (rank, places), rows in zip(adapters, rows_of, strict=True):
        entry = [len(places)]
        for first, columns in places:
            a, b = draw(rank * num_in), draw(rank * columns)
            held += (a, b)
            entry += (ctypes.addressof(a), ctypes.addressof(b), first, columns)
            for row in rows:
                reduced = [
                    0.5 * sum(a[r * num_in + i] * x[row * num_in + i] for i in range(num_in)) for r in range(rank)
                ]
                for column in range(columns):
                    added = sum(reduced[r] * b[r * columns + column] for r in range(rank))
                    expected[row * num_out + first + column] += added
        nothing = [0] * ENTRY_WORDS
        tables.append(array("q", [*nothing, *entry, *nothing[len(entry) :]]))
        words += unit(tables[-1], rank=rank, first_row=rows.start, num_rows=len(rows), scale=0.5)
    where = (ctypes.addressof(x), ctypes.addressof(y))
    units = array("q", words)
    for entry_place in (0, 1):  # nothing stands at the first
        kernel.add(units, entry_place, *where, in_features=num_in, out_features=num_out, num_threads=1)
    return all(abs(got - wanted) <= 1e-3 for got, wanted in zip(y, expected, strict=True))

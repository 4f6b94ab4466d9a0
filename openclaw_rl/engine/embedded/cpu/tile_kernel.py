"""The kernel for quantised tiles, compiled for this CPU in 0.4 s. Knows no torch, no files and no layers.

As a program this module is the probe that tries this machine code, and that for adapters, in a process whose death
harms nobody.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys

from openclaw_rl.engine.embedded.cpu.adapter_kernel import AdapterKernel, adapter_is_right
from openclaw_rl.engine.embedded.cpu.compiling import compiled, openmp_fork
from openclaw_rl.engine.embedded.cpu.tile_code import Bits, kernel_text
from openclaw_rl.model.tiles import BLOCK, LANES

_CHUNK = 16
"""Tiles that a thread takes at a time, at most: 90–250 kB, so that they stay in its cache while many rows pass through.
At least four pieces for each thread: one that the system interrupts leaves its share to the others."""


class TileKernel:
    """The compiled kernel. Many threads may call it at once. `wide` None means: as this CPU's registers are."""

    def __init__(self, *, wide: bool | None = None) -> None:
        self._compiled = compiled(lambda has_512_bits: kernel_text(wide=has_512_bits), wide=wide)
        self._fork = openmp_fork()
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 4, ctypes.c_void_p, ctypes.c_int)
        self._functions = {bits: prototype(self._compiled.get_function_address(f"multiply{bits}")) for bits in (4, 8)}

    def multiply(
        self,
        bits: Bits,
        x: int,
        quants: int,
        scales: int,
        minima: int,
        out: int,
        num_rows: int,
        num_blocks: int,
        num_tiles: int,
        num_threads: int,
    ) -> None:
        """out [rows, tiles · 16] = x [rows, blocks · 32] · Wᵀ, dense fp32, one row or more; pointers as numbers."""
        chunk = min(_CHUNK, -(-num_tiles // (4 * num_threads)))
        fork = self._fork if num_threads > 1 else 0
        self._functions[bits](x, quants, scales, minima, out, num_rows, num_blocks, num_tiles, chunk, fork, num_threads)


def is_right(kernel: TileKernel, bits: Bits) -> bool:
    """Whether the kernel multiplies two tiles of random blocks as plain Python does."""
    numbers = random.Random(bits)
    num_rows, num_blocks, num_tiles = 15, 3, 2  # 15 = 8 + 4 + 2 + 1
    num_columns, num_places = num_blocks * BLOCK, num_tiles * num_blocks * LANES
    x = [numbers.gauss(0, 1) for _ in range(num_rows * num_columns)]
    words = [numbers.getrandbits(32) for _ in range(num_places * bits)]
    halves = struct.pack(f"<{2 * num_places}e", *numbers.choices([1e-3, -0.25, 3e-6, 0.0], k=2 * num_places))
    x_array, out = (ctypes.c_float * len(x))(*x), (ctypes.c_float * (num_rows * num_tiles * LANES))()
    quants, scales = (ctypes.c_uint32 * len(words))(*words), ctypes.create_string_buffer(halves)
    kernel.multiply(
        bits,
        ctypes.addressof(x_array),
        ctypes.addressof(quants),
        ctypes.addressof(scales),
        ctypes.addressof(scales) + 2 * num_places,
        ctypes.addressof(out),
        num_rows,
        num_blocks,
        num_tiles,
        num_threads=1,
    )
    numbers_of_blocks: tuple[float, ...] = struct.unpack(f"<{2 * num_places}e", halves)

    def weight(row: int, column: int) -> float:
        (tile, lane), (block, inside) = divmod(row, LANES), divmod(column, BLOCK)
        word, s = divmod(inside, 32 // bits)
        place = tile * num_blocks + block
        q = words[(place * bits + word) * LANES + lane] >> bits * s & (1 << bits) - 1
        if bits == 8:
            return numbers_of_blocks[place * LANES + lane] * (q - 256 if q > 127 else q)
        return numbers_of_blocks[place * LANES + lane] * q + numbers_of_blocks[num_places + place * LANES + lane]

    weights = [[weight(row, column) for column in range(num_columns)] for row in range(num_tiles * LANES)]
    for i, got in enumerate(out):
        row_of_x, row = divmod(i, num_tiles * LANES)
        terms = [w * x_array[row_of_x * num_columns + k] for k, w in enumerate(weights[row])]
        if not abs(got - sum(terms)) <= 1e-5 * sum(map(abs, terms)):
            return False
    return True


def main() -> int:
    """The exit status says whether the products are right."""
    kernel = TileKernel()
    return 0 if is_right(kernel, 4) and is_right(kernel, 8) and adapter_is_right(AdapterKernel()) else 1


if __name__ == "__main__":
    sys.exit(main())

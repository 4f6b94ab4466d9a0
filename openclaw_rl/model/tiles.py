"""How the quantised weights of the embedded model lie in their file, beside the fp32 ones.

The values are the GGUF's own blocks of 32 weights of one row, each w = scale · q + minimum (Q4_1: q in 0…15) or
w = scale · q (Q8_0: q in -127…127), put into another order and nothing else. A tile holds 16 rows, one per lane of a
vector register, so that a kernel that walks along the columns multiplies 16 rows at a time and never adds across lanes.

A matrix of N rows and M columns is three tensors; tiles = N / 16, rounded up with zeros, and blocks = M / 32:

    NAME.quants   int32   [tiles, blocks, bits, 16]   32 / bits columns in a word, the first in the lowest bits
    NAME.scales   float16 [tiles, blocks, 16]
    NAME.minima   float16 [tiles, blocks, 16]         Q4_1 only

NAME is `layers.3.qkv` (`o`, `gate_up`, `down`; fused as the network has them) or `head`. Knows no numpy and no torch.
"""

from __future__ import annotations

TILES_FILE = "quantised.safetensors"
LANES = 16
BLOCK = 32

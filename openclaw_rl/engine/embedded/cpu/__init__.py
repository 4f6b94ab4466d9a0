"""What the embedded engine runs on a CPU.

`quantised.py` multiplies by 4- and 8-bit weights with `tile_kernel.py`, whose machine code `tile_code.py` writes;
`dtype_probe.py` finds out whether bfloat16 works.
"""

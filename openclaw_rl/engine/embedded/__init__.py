"""The embedded engine: continuous batching, prefix reuse and hot adapters, in a process of its own.

The way of a request: `engine.py` takes it, `scheduler.py` decides what goes into each step, `cache.py` finds what is
already computed, `runner.py` computes, `sampling.py` draws. `loading.py` puts it together from `options.py`.

Three other ways to compute: on a GPU `graph_runner.py` over `graphs.py`, which records a `decode_step.py` of
`kernels.py` (adapters come by `courier.py`, packed as `adapter_layout.py` says); on a CPU `quantised.py` over
`tile_kernel.py`, whose machine code `tile_code.py` writes; other architectures by `fallback.py`. Nothing is imported
here.
"""

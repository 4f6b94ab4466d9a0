"""The embedded engine: continuous batching, prefix reuse and hot adapters, in a process of its own.

The way of a request: `engine.py` takes it, `scheduler.py` decides what goes into each step, `cache.py` finds what is
already computed, `runner.py` computes, `sampling.py` draws. `loading.py` puts it together from `options.py`.

Three other ways to compute: `cuda/` on a GPU, `cpu/` with quantised weights, and `fallback.py` for other
architectures. Nothing is imported here.
"""

"""The embedded engine: continuous batching, prefix reuse and hot adapters, in a process of its own.

The way of a request: `engine.py` takes it, `scheduler.py` decides what goes into each step, `cache.py` finds what is
already computed, `runner.py` computes (on a GPU by `graphs.py` and its `kernels.py`; other architectures by
`fallback.py`), `sampling.py` draws. `loading.py` puts it together from `options.py`. Nothing is imported here.
"""

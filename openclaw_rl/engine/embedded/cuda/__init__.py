"""What the embedded engine runs on a GPU: decode steps as CUDA graphs of Triton kernels.

`graph_runner.py` is the runner over `graphs.py`, which records a `decode_step.py` made of `kernels.py`; `adapters.py`
packs adapters for them.
"""

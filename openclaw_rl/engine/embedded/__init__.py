"""The embedded engine: a transformers model in a process of its own, one forward pass for each request and step.

`model.py` computes, `sampling.py` draws, `scheduler.py` takes turns and is the `Engine`; nothing is imported here.
"""

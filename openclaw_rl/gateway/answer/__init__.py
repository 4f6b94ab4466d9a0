"""A placed request to its answer.

`exchange.py` is the way of one request; `pinning.py` chooses the version, `prompt.py` renders it on the exact ids of
`memory.py`, `capture.py` samples and parses.
"""

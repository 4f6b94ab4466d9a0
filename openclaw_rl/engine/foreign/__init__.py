"""Servers that others wrote, as engines: vLLM, SGLang.

`engine.py` is the `Engine` over any of them: versions, their requests, whose cache is whose. A `ServerDialect`
(`dialect.py`) says how one of them is asked; `../vllm` and `../sglang` hold one each, and the command that starts the
server. `adapters.py` has the folders of versions, `probing.py` looks whether a server can be used, `keeper.py` is the
process around one of ours, and `hosts.py` makes the host.
"""

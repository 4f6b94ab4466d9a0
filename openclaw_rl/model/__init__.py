"""The model: a name in the config becomes a folder on disk, and a folder becomes a network that computes.

On disk, without torch: `files.py` resolves a name, `embedded.py` keeps the embedded model's folder whole,
`conversion.py` makes it from GGUF, `folder.py` names a folder's bytes. In memory, for engine and trainer:
`architecture.py` reads the shape, `weights.py` maps the tensors, `network.py` computes, `adapter.py` is LoRA.
"""

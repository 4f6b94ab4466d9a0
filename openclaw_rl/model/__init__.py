"""The model on disk: a name in the config becomes a Hugging Face style folder whose weights any worker can map.

`files.py` resolves a name, `embedded.py` keeps the embedded model's folder whole, `conversion.py` makes it from GGUF.
Nothing here imports torch or transformers.
"""

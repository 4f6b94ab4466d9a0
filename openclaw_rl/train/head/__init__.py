"""Hidden states become log-probs of given tokens, top-k and entropy, without a [tokens × vocabulary] tensor.

rows.py     READ FIRST: `objective.rows.Rows` over hidden states and the weights of a head
chunks.py   what is done to one chunk of logits, behind a protocol; in plain torch
kernels.py  the same in Triton, for CUDA
"""

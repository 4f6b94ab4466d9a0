"""What a step makes smaller: the mathematics on tensors, with no model, no file and no batch in it.

    rows.py          log-probs of a response's positions, behind a protocol
    sample.py        one sample as tensors, and what was fixed about it before the step
    settings.py      the values of `training.*` that the loss reads
    policy.py        PPO's clipped surrogate, sequence ratio, importance weights
    hints.py         which of several hints teaches, and which tokens of the vocabulary it moves
    distillation.py  what the hinted teacher asks of them
    penalties.py     divergence from the base model, entropy, the critic's loss
    values.py        what a critic expected -> advantages token by token
    aggregate.py     tokens -> sample -> batch
    hybrid.py        READ FIRST: all of it in one loss
    custom.py        a loss of your own, by import path

The formulas stand once, in docs/algorithms.md. Everything here is pure and computes in the dtype it is given.
"""

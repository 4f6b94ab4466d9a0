"""What the loss asks of a model about the positions of one response, and the obvious answer from a matrix of logits.

`Rows` is the seam for a head that never makes a [R, V] tensor. Knows no network: a row is the distribution over the
next token at one position, under softmax(logits / temperature) and over the whole vocabulary.

Axes: R response tokens, K top-k width, J tokens asked for, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from openclaw_rl.train.objective.penalties import entropy


class Rows(Protocol):
    """The distributions at a response's positions. Row i is the one that token i of the response was drawn from."""

    def logprob(self, ids_RJ: Tensor) -> Tensor:
        """Log-probs [R, J] of given tokens, with gradient. The same ids give the same bits, however often asked."""
        ...

    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probs [R, K] of the likeliest tokens, the likeliest first, without gradient.

        Cheapest as the first question.
        """
        ...

    def entropy(self) -> Tensor:
        """[R], with gradient."""
        ...


class DenseRows:
    """Rows over a whole matrix of logits; needs [R, V]."""

    def __init__(self, logits_RV: Tensor, temperature: float = 1.0) -> None:
        self._logprobs_RV = torch.log_softmax(logits_RV / temperature, dim=-1)

    def logprob(self, ids_RJ: Tensor) -> Tensor:
        return self._logprobs_RV.gather(-1, ids_RJ)

    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        logprobs_RK, ids_RK = self._logprobs_RV.detach().topk(k, dim=-1)
        return ids_RK, logprobs_RK

    def entropy(self) -> Tensor:
        return entropy(self._logprobs_RV)

"""Log-probs that a service said, as the `Rows` that the loss asks: those of some tokens at each place, and no others.

Axes: R response tokens, C tokens that are known at a place, J tokens asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.errors import TrainError


class KnownRows:
    """`ids_RC` may have a token twice: the first counts. What is not known is NaN, so that a step that needed it is
    discarded, and one that looked at it among others is not."""

    def __init__(self, ids_RC: Tensor, logprobs_RC: Tensor, *, likely_RK: Tensor | None) -> None:
        self._ids_RC = ids_RC
        self._logprobs_RC = logprobs_RC
        self._likely_RK = likely_RK

    def logprob(self, ids_RJ: Tensor) -> Tensor:
        same_RJC = ids_RJ.unsqueeze(-1) == self._ids_RC.unsqueeze(-2)
        found_RJ = self._logprobs_RC.gather(-1, same_RJC.int().argmax(-1))
        return found_RJ.masked_fill(~same_RJC.any(-1), torch.nan)

    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        if self._likely_RK is None or self._likely_RK.shape[-1] < k:
            raise TrainError("the service did not say the likeliest tokens; set training.distillation=token")
        ids_RK = self._likely_RK[:, :k]
        return ids_RK, self.logprob(ids_RK).detach()

    def entropy(self) -> Tensor:
        raise TrainError("a service gives no entropy; set training.entropy_coef=0")

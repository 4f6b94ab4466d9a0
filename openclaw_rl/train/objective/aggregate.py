"""Values per token become one per sample, and the samples' losses one per batch.

A sample's share of its batch depends on the batch's totals only, so a batch may be computed in any parts.

Axes: R response tokens of one sample.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


def sample_mean(values_R: Tensor, mask_R: Tensor) -> Tensor:
    """The mean over the tokens that count; 0 where none does."""
    return masked_sum(values_R, mask_R) / mask_R.sum().clamp(min=1)


def masked_sum(values_R: Tensor, mask_R: Tensor) -> Tensor:
    """The sum over the tokens that count, whatever stands at the others: even infinities."""
    return values_R.masked_fill(~mask_R, 0.0).sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMean:
    """How samples add up: the mean of their means, or with `per_token` the mean over all tokens of the batch.

    Samples and tokens without a gradient count too: they keep their place in the denominator.
    """

    num_samples: int
    num_tokens: int
    per_token: bool = False

    def share(self, loss_R: Tensor, mask_R: Tensor) -> Tensor:
        """What one sample adds to the loss of its batch; the sum over all samples is that loss."""
        if self.per_token:
            return masked_sum(loss_R, mask_R) / max(self.num_tokens, 1)
        return sample_mean(loss_R, mask_R) / max(self.num_samples, 1)

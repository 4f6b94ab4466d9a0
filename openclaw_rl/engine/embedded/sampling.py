"""A row of logits -> one token, its log-prob and the best alternatives.

The log-prob is log softmax(logits / T) *before* penalties, bias, min-p, top-k and top-p, because that is what a trainer
can compute again; greedy answers (T = 0) record T = 1. The token is drawn after all of them, in vLLM's order.

Each draw uses one uniform number that depends on the seed and on the token's position in the whole sequence. So the
same seed gives the same answer whatever else the engine is doing, and also when an answer is continued by another
engine from its middle. Knows no model. Axes: V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.errors import EngineError
from openclaw_rl.types import Sampling, TokenLogprob

_LOWEST_LOGPROB = -9999.0  # JSON has no infinity; vLLM writes the same number


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What was drawn at one position."""

    token_id: int
    logprob: float
    top_logprobs: tuple[TokenLogprob, ...] | None


class Sampler:
    """Draws the tokens of one answer; remembers what the penalties have to know."""

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int], vocab_size: int, device: torch.device) -> None:
        self._sampling = sampling
        self._seed = sampling.seed if sampling.seed is not None else int.from_bytes(os.urandom(8))
        self._temperature = sampling.temperature or 1.0
        self._bias_ids = torch.tensor(list(sampling.logit_bias), dtype=torch.long, device=device)
        self._bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32, device=device)
        # Repetition looks at prompt and answer, presence and frequency at the answer alone: the convention of vLLM.
        self._seen_V: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self._seen_V = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self._seen_V[torch.tensor(prompt_ids, dtype=torch.long, device=device)] = True
        self._counts_V: Tensor | None = None
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts_V = torch.zeros(vocab_size, dtype=torch.float32, device=device)

    def draw(self, logits_V: Tensor, position: int) -> Draw:
        """The token at `position` of the sequence, counted from the start of the prompt."""
        logits_V = logits_V.float()
        logprobs_V = torch.log_softmax(logits_V / self._temperature, dim=-1)
        adjusted_V = self._penalise(logits_V)
        if self._sampling.temperature == 0.0:
            token = int(adjusted_V.argmax())
        else:
            kept_V = truncate(adjusted_V / self._temperature, self._sampling)
            token = _invert(torch.softmax(kept_V, dim=-1), uniform(self._seed, position))
        self._remember(token)
        logprob = float(logprobs_V[token])
        if math.isnan(logprob):
            raise EngineError("the model computed NaN instead of probabilities; try engine.dtype=float32")
        return Draw(token_id=token, logprob=max(logprob, _LOWEST_LOGPROB), top_logprobs=self._top(logprobs_V))

    def _penalise(self, logits_V: Tensor) -> Tensor:
        if self._seen_V is not None:
            penalty = self._sampling.repetition_penalty
            penalised_V = torch.where(logits_V > 0, logits_V / penalty, logits_V * penalty)
            logits_V = torch.where(self._seen_V, penalised_V, logits_V)
        if self._counts_V is not None:
            logits_V = logits_V - self._sampling.frequency_penalty * self._counts_V
            logits_V = logits_V - self._sampling.presence_penalty * (self._counts_V > 0)
        if len(self._bias_ids):
            logits_V = logits_V.index_add(0, self._bias_ids, self._bias)
        return logits_V

    def _remember(self, token: int) -> None:
        if self._seen_V is not None:
            self._seen_V[token] = True
        if self._counts_V is not None:
            self._counts_V[token] += 1

    def _top(self, logprobs_V: Tensor) -> tuple[TokenLogprob, ...] | None:
        if self._sampling.top_logprobs == 0:
            return None
        best = torch.topk(logprobs_V, min(self._sampling.top_logprobs, len(logprobs_V)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return tuple(TokenLogprob(token, max(logprob, _LOWEST_LOGPROB)) for token, logprob in pairs)


def truncate(scaled_V: Tensor, sampling: Sampling) -> Tensor:
    """`scaled_V` with what min-p, top-k and top-p cut away at -inf; each works on what the one before it left."""
    if sampling.min_p > 0.0:
        probs_V = torch.softmax(scaled_V, dim=-1)
        scaled_V = scaled_V.masked_fill(probs_V < sampling.min_p * probs_V.max(), -math.inf)
    if 0 < sampling.top_k < len(scaled_V):
        smallest = torch.topk(scaled_V, sampling.top_k).values[-1]
        scaled_V = scaled_V.masked_fill(scaled_V < smallest, -math.inf)
    if sampling.top_p < 1.0:
        probs_V, order_V = torch.softmax(scaled_V, dim=-1).sort(descending=True, stable=True)
        above_V = probs_V.cumsum(0) - probs_V  # the mass of everything more probable: 0 for the first, so one is kept
        scaled_V = scaled_V.index_fill(0, order_V[above_V >= sampling.top_p], -math.inf)
    return scaled_V


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), always the same for one seed and position."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def _invert(probs_V: Tensor, point: float) -> int:
    """The token whose slice of the cumulative distribution holds `point`; never one of probability 0."""
    cumulative_V = probs_V.double().cumsum(0)  # in float32 the rounding of 49,152 sums would move the slices
    target = point * cumulative_V[-1:]
    token = int(torch.searchsorted(cumulative_V, target, right=True))
    return min(token, int(cumulative_V.argmax()))

"""Rows of logits -> one token each, its log-prob and the best alternatives; all rows of a step at once.

The log-prob is log softmax(logits / T) *before* penalties, bias, min-p, top-k and top-p, because that is what a trainer
can compute again; greedy answers (T = 0) record T = 1. The token is drawn after all of them, in vLLM's order.

Each draw uses one uniform number that depends on the seed and on the token's position in the whole sequence. So the
same seed gives the same answer whatever else the engine is doing, and also when an answer is continued by another
engine from its middle. For the same reason no operation here mixes rows: a row alone and in a batch gives the same
bits, and a row of NaN fails alone. Knows no model. Axes: B rows of a batch, V vocabulary, C tokens of a block.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from openclaw_rl.types import Sampling, TokenLogprob

NOT_A_NUMBER = "the model computed NaN instead of probabilities; try engine.dtype=float32"
"""What to tell a request whose row failed."""

_LOWEST_LOGPROB = -9999.0  # JSON has no infinity; vLLM writes the same number
_MAX_TOP = (
    20  # as types.py allows. Always asked for whole: the order of equal values would depend on how many are asked
)
_BLOCK = 128  # divides the vocabularies of SmolLM2 (49,152) and Qwen3 (151,936), so that nothing has to be padded
_NUCLEUS = 512  # candidates of top-p before all of V is sorted: 0.12 ms for a row of 49,152 instead of 3.4 ms


T = TypeVar("T")


class Row:
    """One answer as the sampler sees it: its options, its seed, and what the penalties have to remember."""

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int], vocab_size: int, device: torch.device) -> None:
        self.sampling = sampling
        self.seed = sampling.seed if sampling.seed is not None else int.from_bytes(os.urandom(8))
        self.temperature = sampling.temperature or 1.0
        self.bias_ids = torch.tensor(list(sampling.logit_bias), dtype=torch.long, device=device)
        self.bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32, device=device)
        # Repetition looks at prompt and answer, presence and frequency at the answer alone: the convention of vLLM.
        self.seen_V: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self.seen_V = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self.seen_V[torch.tensor(prompt_ids, dtype=torch.long, device=device)] = True
        self.counts_V: Tensor | None = None
        if sampling.presence_penalty or sampling.frequency_penalty:
            self.counts_V = torch.zeros(vocab_size, dtype=torch.float32, device=device)

    @property
    def is_penalised(self) -> bool:
        """Whether the token is chosen by other logits than the model's."""
        return self.seen_V is not None or self.counts_V is not None or len(self.bias_ids) > 0

    @property
    def is_truncated(self) -> bool:
        """Whether the token is chosen among fewer than all."""
        return self.sampling.min_p > 0.0 or self.sampling.top_k > 0 or self.sampling.top_p < 1.0

    def remember(self, token: int) -> None:
        """Count what was drawn."""
        if self.seen_V is not None:
            self.seen_V[token] = True
        if self.counts_V is not None:
            self.counts_V[token] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Log-probs of one token per row, and the best alternatives of the rows that asked for them.

    A row whose logits are no distribution (NaN, +inf) has `failed` set, a log-prob of NaN and no alternatives.
    """

    logprobs: list[float]
    top_logprobs: list[tuple[TokenLogprob, ...] | None]
    failed: list[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws(Gathered):
    """What was drawn, row by row; the token of a failed row is -1."""

    token_ids: list[int]

    @classmethod
    def of(cls, token_ids: Sequence[int], logprobs: Sequence[float]) -> Draws:
        """What was drawn elsewhere, without alternatives; a log-prob of NaN is a failure."""
        failed = [math.isnan(logprob) for logprob in logprobs]
        return cls(
            token_ids=[-1 if fails else token for token, fails in zip(token_ids, failed, strict=True)],
            logprobs=[max(logprob, _LOWEST_LOGPROB) for logprob in logprobs],
            top_logprobs=[None] * len(failed),
            failed=failed,
        )


def draw(logits_BV: Tensor, rows: Sequence[Row], positions: Sequence[int]) -> Draws:
    """The token at `positions[i]` of sequence i, counted from the start of its prompt; the rows remember it."""
    logits_BV = logits_BV.float().contiguous()
    logprobs_BV = _log_softmax(logits_BV, [row.temperature for row in rows])
    points = [uniform(row.seed, position) for row, position in zip(rows, positions, strict=True)]
    adjusted_BV = _where(logits_BV, rows, lambda row: row.is_penalised, _penalise)
    ids_B = _choose(adjusted_BV, logprobs_BV, rows, points)
    gathered = _gather(logprobs_BV, ids_B, [row.sampling.top_logprobs for row in rows])
    for row, token, failed in zip(rows, gathered.token_ids, gathered.failed, strict=True):
        if not failed:
            row.remember(token)
    return gathered


def gather_logprobs(logits_BV: Tensor, ids_B: Tensor, temperature: float, top: int) -> Gathered:
    """The log-prob of `ids_B[i]` in row i, and the `top` best of every row: to the bit what `draw` says of them."""
    num_rows = len(ids_B)
    logprobs_BV = _log_softmax(logits_BV.float().contiguous(), [temperature] * num_rows)
    return _gather(logprobs_BV, ids_B, [top] * num_rows)


def truncate(scaled_BV: Tensor, options: Sequence[Sampling]) -> Tensor:
    """`scaled_BV` with what min-p, top-k and top-p cut away at -inf; each works on what the one before it left."""
    vocab_size = scaled_BV.shape[-1]
    if any(o.min_p > 0.0 for o in options):
        logs_B1 = _column([math.log(o.min_p) if o.min_p > 0.0 else -math.inf for o in options], scaled_BV)
        scaled_BV = scaled_BV.masked_fill(scaled_BV < scaled_BV.amax(-1, keepdim=True) + logs_B1, -math.inf)
    kept = [o.top_k if o.top_k < vocab_size else 0 for o in options]
    if any(kept):
        best_BK = torch.topk(scaled_BV, max(kept)).values
        last_B1 = _column([max(0, k - 1) for k in kept], scaled_BV).long()
        is_off_B1 = _column([k == 0 for k in kept], scaled_BV).bool()
        smallest_B1 = best_BK.gather(1, last_B1).masked_fill(is_off_B1, -math.inf)
        scaled_BV = scaled_BV.masked_fill(scaled_BV < smallest_B1, -math.inf)
    return _where(scaled_BV, options, lambda o: o.top_p < 1.0, _nucleus)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), always the same for one seed and position."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def invert(probs_BV: Tensor, points: Sequence[float]) -> Tensor:
    """The tokens whose slice of the cumulative distribution holds the point; never one of probability 0.

    Two steps, blocks and then the tokens of one block, because cumulative sums need float64 (in float32 the rounding
    of 49,152 sums would move the slices) and this needs it for V / C + C numbers instead of V.
    """
    vocab_size = probs_BV.shape[-1]
    blocks_BNC = functional.pad(probs_BV, (0, -vocab_size % _BLOCK)).unflatten(-1, (-1, _BLOCK))
    upto_BN = blocks_BNC.sum(-1).double().cumsum(-1)
    target_B1 = _column(points, probs_BV, torch.float64) * upto_BN[:, -1:]
    block_B1 = _find(upto_BN, target_B1)
    before_B1 = functional.pad(upto_BN, (1, 0)).gather(1, block_B1)
    block_BC = blocks_BNC.gather(1, block_B1[:, :, None].expand(-1, -1, _BLOCK))[:, 0]
    token_B1 = block_B1 * _BLOCK + _find(block_BC.double().cumsum(-1), target_B1 - before_B1)
    return torch.where(upto_BN[:, -1:].isfinite(), token_B1, -1)[:, 0]


def _choose(adjusted_BV: Tensor, logprobs_BV: Tensor, rows: Sequence[Row], points: Sequence[float]) -> Tensor:
    """The ids; -1 where the probabilities after penalties are no distribution."""
    sampled = [i for i, row in enumerate(rows) if row.sampling.temperature > 0.0]
    if not sampled:
        return adjusted_BV.argmax(-1)
    changed = [i for i in sampled if rows[i].is_penalised or rows[i].is_truncated]
    if len(changed) < len(sampled):
        probs_BV = _rows(logprobs_BV, sampled).exp()
        if changed:
            places = _index([sampled.index(i) for i in changed], probs_BV)
            probs_BV = probs_BV.index_copy(0, places, _changed_probs(adjusted_BV, rows, changed))
    else:
        probs_BV = _changed_probs(adjusted_BV, rows, changed)
    ids_B = invert(probs_BV, [points[i] for i in sampled])
    if len(sampled) == len(rows):
        return ids_B
    return adjusted_BV.argmax(-1).index_copy(0, _index(sampled, adjusted_BV), ids_B)


def _changed_probs(adjusted_BV: Tensor, rows: Sequence[Row], which: Sequence[int]) -> Tensor:
    scaled_BV = _rows(adjusted_BV, which) / _column([rows[i].temperature for i in which], adjusted_BV)
    return torch.softmax(truncate(scaled_BV, [rows[i].sampling for i in which]), dim=-1)


def _penalise(logits_BV: Tensor, rows: Sequence[Row]) -> Tensor:
    logits_BV = _where(logits_BV, rows, lambda row: row.seen_V is not None, _penalise_repetition)
    logits_BV = _where(logits_BV, rows, lambda row: row.counts_V is not None, _penalise_counts)
    if any(len(row.bias_ids) for row in rows):
        row_ids = [i for i, row in enumerate(rows) for _ in range(len(row.bias_ids))]
        places = (_index(row_ids, logits_BV), torch.cat([row.bias_ids for row in rows]))
        logits_BV = logits_BV.index_put(places, torch.cat([row.bias for row in rows]), accumulate=True)
    return logits_BV


def _penalise_repetition(logits_BV: Tensor, rows: Sequence[Row]) -> Tensor:
    seen_BV = torch.stack([row.seen_V for row in rows if row.seen_V is not None])
    penalty_B1 = _column([row.sampling.repetition_penalty for row in rows], logits_BV)
    penalised_BV = torch.where(logits_BV > 0, logits_BV / penalty_B1, logits_BV * penalty_B1)
    return torch.where(seen_BV, penalised_BV, logits_BV)


def _penalise_counts(logits_BV: Tensor, rows: Sequence[Row]) -> Tensor:
    counts_BV = torch.stack([row.counts_V for row in rows if row.counts_V is not None])
    logits_BV = logits_BV - _column([row.sampling.frequency_penalty for row in rows], logits_BV) * counts_BV
    return logits_BV - _column([row.sampling.presence_penalty for row in rows], logits_BV) * (counts_BV > 0)


def _nucleus(scaled_BV: Tensor, options: Sequence[Sampling]) -> Tensor:
    """The most probable tokens whose mass reaches top-p, and one at least; of equal ones those with the lowest ids."""
    probs_BV = torch.softmax(scaled_BV, dim=-1)
    limit_B1 = _column([o.top_p for o in options], scaled_BV, torch.float64)
    width = min(_NUCLEUS, probs_BV.shape[-1])
    num_B1, last_B1, is_whole_B1 = _cut(torch.topk(probs_BV, width).values, limit_B1)
    if width < probs_BV.shape[-1] and not bool(is_whole_B1.all()):
        short_B = torch.nonzero(~is_whole_B1[:, 0])[:, 0]
        sorted_BV = probs_BV.index_select(0, short_B).sort(descending=True).values
        num, last, _ = _cut(sorted_BV, limit_B1.index_select(0, short_B))
        num_B1, last_B1 = num_B1.index_copy(0, short_B, num), last_B1.index_copy(0, short_B, last)
    is_above_BV, is_last_BV = probs_BV > last_B1, probs_BV == last_B1
    room_B1 = num_B1 - is_above_BV.sum(-1, keepdim=True)
    is_kept_BV = is_above_BV | (is_last_BV & (is_last_BV.cumsum(-1, dtype=torch.int32) <= room_B1))
    return scaled_BV.masked_fill(~is_kept_BV, -math.inf)


def _cut(best_BK: Tensor, limit_B1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of falling probabilities: how many are kept, the last of these, and whether any beyond K could be kept."""
    mass_BK = best_BK.double().cumsum(-1)
    # The mass of everything more probable must be below the limit; for the first it is 0, so one is kept.
    num_B1 = 1 + (mass_BK[:, :-1] < limit_B1).sum(-1, keepdim=True)
    return num_B1, best_BK.gather(1, num_B1 - 1), mass_BK[:, -1:] >= limit_B1


def _find(upto_BN: Tensor, target_B1: Tensor) -> Tensor:
    """The first place above the target, or where rounding leaves none the last one that adds anything."""
    return torch.searchsorted(upto_BN, target_B1, right=True).minimum(upto_BN.argmax(-1, keepdim=True))


def _log_softmax(logits_BV: Tensor, temperatures: Sequence[float]) -> Tensor:
    # Not logsumexp: its sum is split among threads when there is one row only, and then has other bits.
    if any(temperature != 1.0 for temperature in temperatures):
        logits_BV = logits_BV / _column(temperatures, logits_BV)
    return torch.log_softmax(logits_BV, dim=-1)


def _gather(logprobs_BV: Tensor, ids_B: Tensor, tops: Sequence[int]) -> Draws:
    """Everything that the host has to know, in one transfer; float64 holds ids and float32 log-probs exactly."""
    chosen_B = logprobs_BV.gather(1, ids_B.clamp(min=0)[:, None])[:, 0].masked_fill(ids_B < 0, math.nan)
    parts = [ids_B, chosen_B]
    asking = [i for i, top in enumerate(tops) if top > 0]
    width = min(_MAX_TOP, logprobs_BV.shape[-1])
    if asking:
        best = torch.topk(_rows(logprobs_BV, asking), width)
        parts += [best.indices.flatten(), best.values.flatten()]
    numbers = iter(torch.cat([part.double() for part in parts]).tolist())
    ids, logprobs = list(islice(numbers, len(tops))), list(islice(numbers, len(tops)))
    best_ids, best_logprobs = list(islice(numbers, width * len(asking))), list(numbers)
    failed = [math.isnan(logprob) for logprob in logprobs]
    top_logprobs: list[tuple[TokenLogprob, ...] | None] = [None] * len(tops)
    for n, i in enumerate(asking):
        if not failed[i]:
            some = slice(n * width, n * width + min(tops[i], width))
            pairs = zip(best_ids[some], best_logprobs[some], strict=True)
            top_logprobs[i] = tuple(TokenLogprob(int(token), max(x, _LOWEST_LOGPROB)) for token, x in pairs)
    return Draws(
        token_ids=[-1 if fails else int(token) for token, fails in zip(ids, failed, strict=True)],
        logprobs=[max(x, _LOWEST_LOGPROB) for x in logprobs],  # max keeps a NaN that stands first
        top_logprobs=top_logprobs,
        failed=failed,
    )


def _where(
    x_BV: Tensor, rows: Sequence[T], needs: Callable[[T], bool], change: Callable[[Tensor, list[T]], Tensor]
) -> Tensor:
    """`x_BV` with `change` applied to the rows that need it, and to no other."""
    which = [i for i, row in enumerate(rows) if needs(row)]
    if not which:
        return x_BV
    changed_BV = change(_rows(x_BV, which), [rows[i] for i in which])
    return changed_BV if len(which) == len(rows) else x_BV.index_copy(0, _index(which, x_BV), changed_BV)


def _rows(x_BV: Tensor, which: Sequence[int]) -> Tensor:
    return x_BV if len(which) == len(x_BV) else x_BV.index_select(0, _index(which, x_BV))


def _index(which: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(which, dtype=torch.long, device=like.device)


def _column(values: Sequence[float], like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=like.device)[:, None]

"""What a step asks of a model: sequences in, one reading of each response out. The seam between steps and networks.

A reader is a model at certain weights; `student.py` has those that learn. The one here reads with our own network, all
sequences in one flat pass; `fallback.py` has the one for architectures of others. Knows no loss and no file.

Axes: R rows of one response, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from openclaw_rl.model.network import Lora, Network
from openclaw_rl.train.sequences import Sequenced, response_rows


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A response as a model read it. Row i is what token i of the response was predicted from."""

    hidden: Tensor
    """[R, H], what goes into the model's head."""
    logits: Callable[[], Tensor]
    """[R, V] in float32, with all that the model does to them behind its head."""


class Reader(Protocol):
    """A model at certain weights, on one device."""

    @property
    def device(self) -> torch.device: ...

    @property
    def hidden_size(self) -> int: ...

    def read(
        self, sequences: Sequence[Sequenced], *, recompute: bool = False, dropout_seed: int | None = None
    ) -> list[Reading]:
        """One reading for each sequence, with gradient where there is one.

        With `recompute` activations are computed again in the backward pass instead of kept. With a seed, dropout is
        on where the weights have one, and the same seed drops the same numbers.
        """
        ...


class LoraFor(Protocol):
    """The adapter for a pass over so many tokens; with a seed, behind dropout."""

    def __call__(self, num_tokens: int, *, dropout_seed: int | None = None) -> Lora | None: ...


def no_adapter(num_tokens: int, *, dropout_seed: int | None = None) -> None:
    """The network as it is."""


class NetworkReader:
    """Our own network, wearing at most one adapter."""

    def __init__(self, network: Network, lora: LoraFor = no_adapter) -> None:
        self._network = network
        self._lora = lora
        self.device = network.device
        self.hidden_size = network.arch.hidden_size

    def read(
        self, sequences: Sequence[Sequenced], *, recompute: bool = False, dropout_seed: int | None = None
    ) -> list[Reading]:
        lora = self._lora(sum(map(len, sequences)), dropout_seed=dropout_seed)
        rows = response_rows(self._network, sequences, lora, recompute=recompute)
        return [Reading(rows_RH, partial(self._network.logits, rows_RH)) for rows_RH in rows]


@torch.no_grad()
def token_logprobs(reader: Reader, sequences: Sequence[Sequenced], *, max_tokens: int) -> Iterator[tuple[float, ...]]:
    """The log-prob of each response token of each sequence at T = 1, in passes of at most so many tokens."""
    waiting = list(sequences)
    while waiting:
        num, total = 1, len(waiting[0])
        while num < len(waiting) and total + len(waiting[num]) <= max_tokens:
            total += len(waiting[num])
            num += 1
        part, waiting = waiting[:num], waiting[num:]
        for one, reading in zip(part, reader.read(part), strict=True):
            logprobs_RV = reading.logits().float().log_softmax(-1)
            ids_R = torch.tensor(one.response_ids, device=logprobs_RV.device)
            yield tuple(logprobs_RV.gather(1, ids_R[:, None])[:, 0].tolist())

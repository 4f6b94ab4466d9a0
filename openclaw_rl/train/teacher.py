"""Hinted prompts -> what the teacher would have said at every token of the response. Never with gradient.

base      the model before it learned anything
current   what is being trained, as it stands at the start of the step
ema       a slow average of it
path      another checkpoint with the same tokenizer
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from openclaw_rl.model.network import Lora, Network
from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.sequences import Sequenced, response_rows

LoraFor = Callable[[int], Lora | None]
"""The adapter for a pass over so many tokens."""


class Teacher:
    """Reads sequences with one network and at most one adapter."""

    def __init__(self, network: Network, lora: LoraFor = lambda num_tokens: None, *, temperature: float = 1.0) -> None:
        self._network = network
        self._lora = lora
        self._temperature = temperature

    @torch.no_grad()
    def read(self, sequences: Sequence[Sequenced], temperatures: Sequence[float]) -> list[Rows]:
        """The rows of each response; its logits are divided by the sample's temperature and by the teacher's."""
        lora = self._lora(sum(map(len, sequences)))
        hidden = response_rows(self._network, sequences, lora)
        return [
            DenseRows(self._network.logits(rows_RH), temperature * self._temperature)
            for rows_RH, temperature in zip(hidden, temperatures, strict=True)
        ]

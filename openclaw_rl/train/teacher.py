"""Hinted prompts -> what the teacher would have said at every token of the response. Never with gradient.

base      the model before it learned anything
current   what is being trained, as it stands at the start of the step
ema       a slow average of it
path      another checkpoint with the same tokenizer
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.reader import Reader
from openclaw_rl.train.sequences import Sequenced


class Teacher:
    """Reads sequences and forgets how."""

    def __init__(self, reader: Reader, *, temperature: float = 1.0) -> None:
        self._reader = reader
        self._temperature = temperature

    @torch.no_grad()
    def read(self, sequences: Sequence[Sequenced], temperatures: Sequence[float]) -> list[Rows]:
        """The rows of each response; its logits are divided by the sample's temperature and by the teacher's."""
        return [
            DenseRows(reading.logits(), temperature * self._temperature)
            for reading, temperature in zip(self._reader.read(sequences), temperatures, strict=True)
        ]

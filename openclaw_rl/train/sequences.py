"""What is read: a prompt, and the response whose tokens are asked about. Knows no tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sequenced:
    """A prompt and the response after it."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]

    def __len__(self) -> int:
        """Tokens that are read: nobody asks what follows the last one."""
        return len(self.prompt_ids) + len(self.response_ids) - 1

    @cached_property
    def ids(self) -> Ints:
        """These tokens. Once only: of 27,000 it takes a millisecond, and a step has a hundred such sequences."""
        return np.array(self.prompt_ids + self.response_ids[:-1], dtype=np.int64)

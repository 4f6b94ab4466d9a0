"""A tensor on the CPU -> the same on the GPU, without holding up the steps that run there.

One large copy from ordinary memory, or pinning as much for it, blocks the driver for tens of milliseconds, and every
launch of a kernel waits. So it goes in small parts, through pinned memory that was there from the start, on a stream of
its own.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from openclaw_rl.model.adapter import Rest

_PART_BYTES = 4 << 20


class Courier:
    """May be called from any thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._staging = torch.empty(_PART_BYTES, dtype=torch.uint8, pin_memory=True)
        self._lock = threading.Lock()

    def send(self, source: Tensor, rest: Rest) -> Tensor:
        """Returns when the copy is there. Calls `rest` before each part."""
        with self._lock:
            with torch.cuda.stream(self._stream):
                target = torch.empty(source.shape, dtype=source.dtype, device=self._device)
            parts = zip(_bytes(source).split(_PART_BYTES), _bytes(target).split(_PART_BYTES), strict=True)
            for part, place in parts:
                rest()
                staged = self._staging[: len(part)].copy_(part)
                with torch.cuda.stream(self._stream):
                    place.copy_(staged, non_blocking=True)
                self._stream.synchronize()
            return target


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)

"""The peak of memory since a moment: of tensors on a CUDA device, or on Linux of this process, without the interpreter.

On a CPU it is what lives in tensors at that moment and how far the resident memory rises above it, so that both count
weights, optimiser and activations, and neither counts libraries.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import torch

_OWN = Path("/proc/self")


class PeakMemory:
    """Begins to watch when it is made."""

    def __init__(self, device: torch.device) -> None:
        gc.collect()
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        ctypes.CDLL(None).malloc_trim(0)  # what was freed and not given back would hide the next rise
        (_OWN / "clear_refs").write_text("5")  # resident peak := resident now; see proc(5)
        self._held = _in_tensors()
        self._resting = _status("VmRSS")

    @property
    def gib(self) -> float:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**30
        return (self._held + _status("VmHWM") - self._resting) / 2**30


def _status(name: str) -> int:
    """Bytes of a line like `VmRSS:  123456 kB`."""
    lines = dict(line.split(":", 1) for line in (_OWN / "status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def _in_tensors() -> int:
    storages = (one.untyped_storage() for one in gc.get_objects() if type(one) is torch.Tensor)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

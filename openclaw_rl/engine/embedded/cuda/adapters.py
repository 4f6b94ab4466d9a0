"""Adapters for the decode step's kernels: how one is packed, and how it gets to the GPU beside running steps.

`AdapterLayout` is one flat buffer in which every matrix has its fixed place. Both sides know the places from here: who
packs an adapter for a slot, and who tells a kernel where to look. `Courier` copies it: one large copy from ordinary
memory, or pinning as much for it, blocks the driver for tens of milliseconds, and every launch of a kernel waits. So it
goes in small parts, through pinned memory that was there from the start, on a stream of its own.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from openclaw_rl.model.adapter import AdapterWeights, Rest
from openclaw_rl.model.architecture import MODULES, Architecture, Module

_PART_BYTES = 4 << 20


class AdapterLayout:
    """An adapter of rank R as one flat buffer: for each layer and fused projection A [parts·R, in], then B [out, R]."""

    def __init__(self, arch: Architecture) -> None:
        self._num_layers = arch.num_layers
        self._shapes: dict[Module, tuple[int, int, int]] = {}
        self._begins: dict[Module, int] = {}
        self._starts: dict[Module, list[int]] = {}
        self._per_layer = 0
        for module in MODULES:
            parts = arch.projections(module)
            shape = (len(parts), parts[0].in_features, sum(part.out_features for part in parts))
            self._shapes[module], self._begins[module] = shape, self._per_layer
            self._starts[module] = [sum(part.out_features for part in parts[:i]) for i in range(len(parts))]
            self._per_layer += shape[0] * shape[1] + shape[2]

    def offset(self, layer: int, module: Module) -> int:
        """Where the projection's A begins, to be multiplied by the rank."""
        return layer * self._per_layer + self._begins[module]

    def packed(
        self, adapter: AdapterWeights, rank: int, *, device: torch.device, dtype: torch.dtype, rest: Rest
    ) -> Tensor:
        """The buffer for `rank`, which is the adapter's or more; what it does not train is zero."""
        flat = torch.zeros(self._num_layers * self._per_layer * rank, device=device, dtype=dtype)
        for layer in range(self._num_layers):
            for module, (num_parts, num_inputs, num_outputs) in self._shapes.items():
                if (parts := adapter.parts(layer, module)) is None:
                    continue
                begin = self.offset(layer, module) * rank
                middle = begin + num_parts * num_inputs * rank
                a = flat[begin:middle].view(num_parts, rank, num_inputs)
                b = flat[middle : middle + num_outputs * rank].view(num_outputs, rank)
                rest()
                for part in parts.parts:
                    a[self._starts[module].index(part.out.start), : adapter.rank] = parts.a[part.rank]
                    b[part.out, : adapter.rank] = part.b
        return flat


class Courier:
    """A tensor on the CPU -> the same on the GPU. May be called from any thread."""

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

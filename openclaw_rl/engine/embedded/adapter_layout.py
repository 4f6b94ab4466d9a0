"""An adapter as the decode step's kernels read it: one flat buffer in which every matrix has its fixed place.

Both sides know the places from here: who packs an adapter for a slot, and who tells a kernel where to look. Knows no
slots, no files and no kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.model.adapter import AdapterWeights, Rest
from openclaw_rl.model.architecture import MODULES, Architecture, Module


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

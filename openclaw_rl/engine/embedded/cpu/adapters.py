"""The adapters of a batch -> a `model.network.Lora` that asks the kernel: one call for a projection and all adapters.

Asked of torch, 32 rows with an adapter each are 200 small products for every projection, by one thread. What has many
rows, a prompt mostly, and an adapter of an odd shape are still torch's.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from openclaw_rl.engine.embedded.cpu.adapter_code import ENTRY_WORDS, MAX_RANK, MAX_ROWS
from openclaw_rl.engine.embedded.cpu.adapter_kernel import AdapterKernel, unit
from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.architecture import MODULES, Module
from openclaw_rl.model.tiles import BLOCK, LANES

_MANY_ROWS = 64
"""Of more with one adapter torch keeps more in registers, and is as fast."""

_FEW_ADAPTERS = 3
"""So few are read by one thread before a second one is awake."""

_PLACES = {module: place for place, module in enumerate(MODULES)}

Group = tuple[slice, AdapterWeights]


class KernelAdapters:
    """The kernel, and where the matrices of each adapter that it has seen lie."""

    def __init__(self, kernel: AdapterKernel) -> None:
        self._kernel = kernel
        self._tables: WeakKeyDictionary[AdapterWeights, array[int]] = WeakKeyDictionary()

    def rows(self, groups: Sequence[Group]) -> KernelLora:
        """For a flat batch of which each group of rows has its own adapter."""
        others, words = list[Group](), list[int]()
        held: list[object] = [groups]
        for rows, adapter in groups:
            if rows.stop - rows.start > _MANY_ROWS or not _is_known(adapter):
                others.append((rows, adapter))
                continue
            table = self._table(adapter)
            held.append(table)
            for first in range(rows.start, rows.stop, MAX_ROWS):
                num_rows = min(MAX_ROWS, rows.stop - first)
                words += unit(table, rank=adapter.rank, first_row=first, num_rows=num_rows, scale=adapter.scale)
        threads = 1 if len(groups) <= _FEW_ADAPTERS else torch.get_num_threads()
        return KernelLora(self._kernel, array("q", words), held, LoraRows(others) if others else None, threads)

    def _table(self, adapter: AdapterWeights) -> array[int]:
        if (table := self._tables.get(adapter)) is None:
            table = self._tables[adapter] = _table_of(adapter)
        return table


class KernelLora:
    """`model.network.Lora` of one pass over a batch."""

    def __init__(
        self,
        kernel: AdapterKernel,
        units: array[int],
        held: object,
        others: LoraRows | None,
        num_threads: int,
    ) -> None:
        self._kernel, self._units, self._others, self._num_threads = kernel, units, others, num_threads
        self._held = held
        """The units are addresses, in the memory of these."""

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        if self._others is not None:
            y = self._others.add(layer, module, x, y)
        if not self._units:
            return y
        assert y.is_contiguous(), "the kernel writes into whole rows"
        x = x.contiguous()
        self._kernel.add(
            self._units,
            layer * len(MODULES) + _PLACES[module],
            x.data_ptr(),
            y.data_ptr(),
            in_features=x.shape[1],
            out_features=y.shape[1],
            num_threads=self._num_threads,
        )
        return y


def _is_known(adapter: AdapterWeights) -> bool:
    """Whether the kernel can multiply by it."""
    if adapter.rank > MAX_RANK or adapter.flat.dtype != torch.float32:
        return False
    sizes = [part for module in MODULES for part in adapter.arch.projections(module)]
    return all(part.in_features % BLOCK == 0 and part.out_features % LANES == 0 for part in sizes)


def _table_of(adapter: AdapterWeights) -> array[int]:
    """Where the parts of every projection of every layer begin."""
    words: list[int] = []
    for layer in range(adapter.arch.num_layers):
        for module in MODULES:
            entry = [0]
            if (parts := adapter.parts(layer, module)) is not None:
                entry = [len(parts.parts)]
                for part in parts.parts:
                    columns = part.out.stop - part.out.start
                    entry += (parts.a[part.rank].data_ptr(), part.b.data_ptr(), part.out.start, columns)
            words += entry + [0] * (ENTRY_WORDS - len(entry))
    return array("q", words)

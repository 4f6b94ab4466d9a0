"""Where students come from when the model lies in shards: `worker.student.Model` over `network.ShardedNetwork`.

An adapter learns in shards too: whole while a pass is computed, rows and their moments between. Files are those of one
process: an adapter for PEFT, a model for Hugging Face. Every rank calls the same methods.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from openclaw_rl.errors import TrainError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.network import Lora, Network
from openclaw_rl.train.fsdp.network import ShardedNetwork, shard
from openclaw_rl.train.passes.lora import DroppedLora, LearnedLora
from openclaw_rl.train.passes.reader import NetworkReader, Reader
from openclaw_rl.train.worker.crew import Crew
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.student import Model, NetworkModel, Student, new_adapter


class ShardedAdapterStudent:
    """An adapter learns, in float32; the network's shards stay as they are."""

    def __init__(
        self, network: Network, adapter: AdapterWeights, mesh: DeviceMesh, *, dropout: float, crew: Crew
    ) -> None:
        self._network = network
        self._crew = crew
        self._dropout = dropout
        self._module = _Flat(adapter.flat, mesh)
        self._adapter = adapter.over(torch.empty_like(adapter.flat, device="meta"))
        self.parameters: list[Tensor] = [self._module.flat]

    @property
    def reader(self) -> Reader:
        return NetworkReader(self._network, self._lora)

    def vector(self) -> Tensor:
        return self._module.flat.detach()

    def averaged(self, flat: Tensor) -> Reader:
        assert isinstance(flat, DTensor)
        return NetworkReader(self._network, partial(self._worn, flat.full_tensor().to(self._network.dtype)))

    def _lora(self, num_tokens: int, *, dropout_seed: int | None = None) -> Lora:
        return self._worn(self._module(self._network.dtype), num_tokens, dropout_seed=dropout_seed)

    def _worn(self, flat: Tensor, num_tokens: int, *, dropout_seed: int | None = None) -> Lora:
        lora = LearnedLora(self._adapter.over(flat))
        return lora if dropout_seed is None or not self._dropout else DroppedLora(lora, self._dropout, dropout_seed)

    def save(self, folder: Path) -> None:
        flat = self._module.flat
        assert isinstance(flat, DTensor)
        whole = flat.full_tensor().detach()
        if self._crew.number == 0:
            self._adapter.over(whole).save(folder, dropout=self._dropout)


class _Flat(nn.Module):
    """An adapter's numbers. Calling it gives all of them; from then on they are whole until they have a gradient."""

    def __init__(self, flat: Tensor, mesh: DeviceMesh) -> None:
        super().__init__()
        self.flat = nn.Parameter(flat)
        shard(self, mesh)

    def forward(self, dtype: torch.dtype) -> Tensor:
        return self.flat.to(dtype, copy=True)


class ShardedFullStudent:
    """Every weight learns."""

    def __init__(self, network: ShardedNetwork, *, source: Path, crew: Crew) -> None:
        self._network = network
        self._source = source
        self._crew = crew
        self.parameters = network.parameters

    @property
    def reader(self) -> Reader:
        return NetworkReader(self._network)

    def vector(self) -> Tensor:
        raise AssertionError("only adapters are averaged")

    def averaged(self, flat: Tensor) -> Reader:
        raise AssertionError("only adapters are averaged")

    def save(self, folder: Path) -> None:
        self._network.save(folder, source=self._source, crew=self._crew)


class ShardedModel(NetworkModel):
    """A folder of an architecture that our own network computes, over all ranks of a mesh."""

    def __init__(
        self,
        folder: Path,
        arch: Architecture,
        *,
        mesh: DeviceMesh,
        device: torch.device,
        dtype: torch.dtype,
        crew: Crew,
    ) -> None:
        self._mesh = mesh
        self._crew = crew
        super().__init__(folder, arch, device=device, dtype=dtype)

    def student(self, parent: Path | None, settings: TrainSettings, *, seed: int) -> Student:
        arch = self.network.arch
        if not settings.use_lora:
            network = self._sharded(self._folder if parent is None else parent, arch, learns=True)
            return ShardedFullStudent(network, source=self._folder, crew=self._crew)
        if parent is None:
            adapter = new_adapter(arch, settings, seed=seed, device=self._device)
        else:
            adapter = AdapterWeights.load(parent, arch, device=self._device, dtype=torch.float32)
        return ShardedAdapterStudent(self.network, adapter, self._mesh, dropout=settings.lora_dropout, crew=self._crew)

    def _open(self, folder: Path, arch: Architecture) -> Network:
        return self._sharded(folder, arch, learns=False)

    def _sharded(self, folder: Path, arch: Architecture, *, learns: bool) -> ShardedNetwork:
        return ShardedNetwork(folder, arch, mesh=self._mesh, dtype=self._dtype, learns=learns)


def open_sharded(
    folder: Path,
    arch: Architecture | None,
    *,
    mesh: DeviceMesh,
    device: torch.device,
    dtype: torch.dtype,
    crew: Crew,
) -> Model:
    """`TrainError` for an architecture that is none of our own network's."""
    if arch is None:
        raise TrainError(
            "training.backend=fsdp shards the architectures of our own network, Llama's and Qwen3's, and the model in "
            f"{folder} has another; train it with training.backend=local"
        )
    return ShardedModel(folder, arch, mesh=mesh, device=device, dtype=dtype, crew=crew)

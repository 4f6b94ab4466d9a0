"""A model's folder -> our own network, its weights sharded over the ranks by FSDP2, layer by layer.

Every matrix lies in rows over all ranks. A layer is whole on a rank while it computes; what stands before and behind
the layers (embedding, last norm, head) from the first pass until its gradient is made. All ranks have to run the same
passes in the same order. Only a rank's own rows are ever copied out of the mapped files.

Axes: T tokens, H hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.elementwise import PLAIN
from openclaw_rl.model.network import (
    Attend,
    DenseLinear,
    LayerWeights,
    Linear,
    Lora,
    Network,
    RunLayer,
    SplitLinear,
    Weights,
)
from openclaw_rl.model.weights import (
    WeightsOnDisk,
    copy_description,
    dense_matrix,
    named_ends,
    named_layer,
    save_index,
    save_part,
)
from openclaw_rl.train.worker.crew import Crew

_NORMS = ("input_norm", "q_norm", "k_norm", "post_norm")
_PARTS = ("input_norm", "qkv", "q_norm", "k_norm", "o", "post_norm", "gate_up", "down")
"""In the order in which `worker/student.py` has them: so a line's optimiser fits either trainer."""


class ShardedNetwork(Network):
    """The network of a folder over all ranks; with `learns`, every weight has a gradient."""

    def __init__(self, folder: Path, arch: Architecture, *, mesh: DeviceMesh, dtype: torch.dtype, learns: bool) -> None:
        disk = WeightsOnDisk(folder, arch, device=torch.device("cpu"), dtype=dtype)  # sharded, then on its device
        self._blocks = [_Block(disk.layer(index), mesh, learns=learns) for index in range(arch.num_layers)]
        self._ends = _Ends(disk.around(()), self._blocks, mesh, arch=arch, learns=learns)
        super().__init__(arch, self.weights, is_fused=True)

    @property
    def weights(self) -> Weights:
        """As they are now: whole where a pass is running, rows elsewhere."""
        return self._ends.weights()

    @property
    def parameters(self) -> list[Tensor]:
        """All of them, in shards."""
        ends = self._ends
        layers = [one for block in self._blocks for one in block.parameters()]
        return [ends.embedding, *layers, ends.final_norm, *([] if ends.head is None else [ends.head])]

    def unfused(self) -> Network:
        """The same shards, nothing compiled."""
        plain = copy.copy(self)
        plain._elementwise = PLAIN
        return plain

    def hidden(
        self,
        ids_T: Tensor,
        positions_T: Tensor,
        attend: Attend,
        lora: Lora | None = None,
        run_layer: RunLayer | None = None,
        *,
        num_layers: int | None = None,
    ) -> Tensor:
        run = partial(super().hidden, ids_T, positions_T, attend, lora, run_layer, num_layers=num_layers)
        hidden_TH: Tensor = self._ends(run)
        return hidden_TH

    def _block(
        self,
        index: int,
        x: Tensor,
        rope: tuple[Tensor, Tensor],
        attend: Attend,
        lora: Lora | None,
        run_layer: RunLayer | None,
    ) -> Tensor:
        run = partial(super()._block, rope=rope, attend=attend, lora=lora, run_layer=run_layer)
        out: Tensor = self._blocks[index](x, lambda x_TH: run(index, x_TH))
        return out

    def save(self, folder: Path, *, source: Path, crew: Crew) -> None:
        """A folder as Hugging Face writes large models: every rank writes a file, and no rank has all of them. Whoever
        waits for all ranks syncs it."""
        mine: dict[str, Tensor] = {}
        units: list[_Ends | _Block] = [self._ends, *self._blocks]
        for number, unit in enumerate(units):
            whole = unit.whole(keep=number % crew.size == crew.number)
            if isinstance(whole, Weights):
                mine |= named_ends(whole, self.arch)
            elif whole is not None:
                mine |= named_layer(number - 1, whole, self.arch)
        tensors = {name: tensor.contiguous() for name, tensor in mine.items()}
        parts = crew.gathered(list(tensors))
        folder.mkdir(parents=True, exist_ok=True)
        if crew.number == 0:
            copy_description(source, folder)
            save_index(folder, self.arch, parts, itemsize=self.dtype.itemsize)
        save_part(tensors, folder, number=crew.number, num_parts=crew.size)


class _Block(nn.Module):
    """A layer's weights. Running it makes them whole on this rank, and lets them go."""

    def __init__(self, layer: LayerWeights, mesh: DeviceMesh, *, learns: bool) -> None:
        super().__init__()
        for name in _PARTS:
            value = getattr(layer, name)
            matrix = value if value is None or name in _NORMS else _matrix(value)
            self.register_parameter(name, None if matrix is None else nn.Parameter(matrix, requires_grad=learns))
        shard(self, mesh)

    def forward(self, x_TH: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        return run(x_TH)

    def weights(self) -> LayerWeights:
        """As they are now."""
        return self._of(lambda parameter: parameter)

    def whole(self, *, keep: bool) -> LayerWeights | None:
        """All rows of all ranks, in the host's memory; every rank has to ask, and those that `keep` get them."""
        found = self._of(partial(_whole, keep=keep))
        return found if keep else None

    def _of(self, get: Callable[[Tensor], Tensor]) -> LayerWeights:
        def one(name: str) -> Any:
            parameter = getattr(self, name)
            if parameter is None:
                return None
            return get(parameter) if name in _NORMS else DenseLinear(get(parameter))

        return LayerWeights(**{name: one(name) for name in _PARTS})


class _Ends(nn.Module):
    """What stands before and behind the layers, and the layers; running it runs a whole pass."""

    def __init__(
        self, ends: Weights, blocks: Sequence[_Block], mesh: DeviceMesh, *, arch: Architecture, learns: bool
    ) -> None:
        super().__init__()
        self.embedding = nn.Parameter(ends.embedding, requires_grad=learns)
        self.final_norm = nn.Parameter(ends.final_norm, requires_grad=learns)
        self.head = None if arch.tied_head else nn.Parameter(dense_matrix(ends.head), requires_grad=learns)
        self.blocks = nn.ModuleList(blocks)
        self._layers = _Layers(blocks)
        shard(self, mesh)

    def forward(self, run: Callable[[], Tensor]) -> Tensor:
        return run()

    def weights(self) -> Weights:
        """As they are now."""
        return self._of(lambda parameter: parameter)

    def whole(self, *, keep: bool) -> Weights | None:
        """As of a block; without the layers."""
        found = self._of(partial(_whole, keep=keep))
        return found if keep else None

    def _of(self, get: Callable[[Tensor], Tensor]) -> Weights:
        embedding = get(self.embedding)
        return Weights(
            embedding=embedding,
            layers=self._layers,
            final_norm=get(self.final_norm),
            head=DenseLinear(embedding if self.head is None else get(self.head)),
        )


class _Layers(Sequence[LayerWeights]):
    """Each layer's weights as they are when it is asked for."""

    def __init__(self, blocks: Sequence[_Block]) -> None:
        self._blocks = tuple(blocks)

    @overload
    def __getitem__(self, index: int) -> LayerWeights: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LayerWeights]: ...
    def __getitem__(self, index: int | slice) -> LayerWeights | Sequence[LayerWeights]:
        return _Layers(self._blocks[index]) if isinstance(index, slice) else self._blocks[index].weights()

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[LayerWeights]:
        return (block.weights() for block in self._blocks)


def shard(module: nn.Module, mesh: DeviceMesh) -> None:
    """A module's parameters that are not sharded yet become rows; gradients are summed over the ranks, in float32."""
    fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    assert isinstance(module, FSDPModule)
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)


def _whole(parameter: Tensor, *, keep: bool) -> Tensor:
    assert isinstance(parameter, DTensor)
    whole: Tensor = parameter.full_tensor().detach()
    return whole.cpu() if keep else whole


def _matrix(linear: Linear) -> Tensor:
    if isinstance(linear, SplitLinear):
        return torch.cat([part.weight for part in linear.parts])
    if not isinstance(linear, DenseLinear):
        raise ModelError(f"{type(linear).__name__} cannot be sharded; load the weights in float32 or bfloat16")
    return linear.weight

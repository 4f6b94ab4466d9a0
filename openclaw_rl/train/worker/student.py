"""The weights that learn: an adapter on frozen weights, or all weights. Both behind one face.

    parameters   what the optimiser moves, one flat float32 tensor or many
    reader       the model as it stands, for a pass with gradient
    averaged     the model at an average of what its parameters were
    save         the folder that an engine loads

`Model` is where students come from: a folder that was opened, here over our own network. Knows no loss, no optimiser
and no samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import TARGETS, AdapterWeights
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.network import DenseLinear, LayerWeights, Lora, Network, Weights
from openclaw_rl.model.weights import load_weights, save_weights
from openclaw_rl.train.passes.lora import DroppedLora, LearnedLora
from openclaw_rl.train.passes.reader import NetworkReader, Reader
from openclaw_rl.train.worker.settings import TrainSettings

ALL_LINEAR = "all-linear"


class Student(Protocol):
    """What learns."""

    parameters: list[Tensor]

    @property
    def reader(self) -> Reader: ...

    def vector(self) -> Tensor:
        """All parameters as they stand, one behind the other; of a sharded student what this process has of them."""
        ...

    def averaged(self, flat: Tensor) -> Reader:
        """At other values of all parameters, as `vector` has them."""
        ...

    def save(self, folder: Path) -> None: ...


class Model(Protocol):
    """A model's folder, opened to be trained; its own weights stay as they are."""

    vocab_size: int
    can_recompute: bool
    """Whether activations can be computed again."""

    @property
    def all_linear(self) -> tuple[str, ...]:
        """The layers that `all-linear` means."""
        ...

    @property
    def reader(self) -> Reader:
        """The weights of the folder."""
        ...

    def student(self, parent: Path | None, settings: TrainSettings, *, seed: int) -> Student:
        """As the folder `parent` that a student saved has it; None: where a line begins."""
        ...


class AdapterStudent:
    """An adapter learns, in float32 whatever the network computes in; the network stays as it is."""

    def __init__(self, network: Network, adapter: AdapterWeights, *, dropout: float) -> None:
        self.network = network
        self.adapter = adapter
        self._dropout = dropout
        self._flat = adapter.flat.requires_grad_()
        self.parameters = [self._flat]

    @property
    def reader(self) -> Reader:
        return NetworkReader(self.network, partial(self._lora, self._flat))

    def vector(self) -> Tensor:
        return self._flat.detach()

    def averaged(self, flat: Tensor) -> Reader:
        return NetworkReader(self.network, partial(self._lora, flat))

    def _lora(self, flat: Tensor, num_tokens: int, *, dropout_seed: int | None = None) -> Lora:
        # Views of the one tensor that learns, made anew for each pass: its gradient then arrives in one piece.
        lora = LearnedLora(self.adapter.over(flat.to(self.network.dtype)))
        return lora if dropout_seed is None or not self._dropout else DroppedLora(lora, self._dropout, dropout_seed)

    def save(self, folder: Path) -> None:
        self.adapter.over(self._flat.detach()).save(folder, dropout=self._dropout)


class FullStudent:
    """Every weight learns. The network is a copy: the mapped files that others read stay as they are."""

    def __init__(self, network: Network, *, source: Path) -> None:
        self._source = source
        self.parameters: list[Tensor] = []
        self.network = Network(network.arch, self._copied(network.weights), is_fused=True)

    @property
    def reader(self) -> Reader:
        return NetworkReader(self.network)

    def vector(self) -> Tensor:
        return parameters_to_vector(self.parameters).detach()

    def averaged(self, flat: Tensor) -> Reader:
        raise AssertionError("only adapters are averaged")

    def save(self, folder: Path) -> None:
        save_weights(self.network.weights, self.network.arch, folder, source=self._source)

    def _copied(self, weights: Weights) -> Weights:
        embedding = self._learning(weights.embedding)
        tied = isinstance(weights.head, DenseLinear) and weights.head.weight is weights.embedding
        return Weights(
            embedding=embedding,
            layers=tuple(self._layer(layer) for layer in weights.layers),
            final_norm=self._learning(weights.final_norm),
            head=DenseLinear(embedding) if tied else self._linear(weights.head),
        )

    def _layer(self, layer: LayerWeights) -> LayerWeights:
        def norm(weight: Tensor | None) -> Tensor | None:
            return None if weight is None else self._learning(weight)

        return LayerWeights(
            input_norm=self._learning(layer.input_norm),
            qkv=self._linear(layer.qkv),
            q_norm=norm(layer.q_norm),
            k_norm=norm(layer.k_norm),
            o=self._linear(layer.o),
            post_norm=self._learning(layer.post_norm),
            gate_up=self._linear(layer.gate_up),
            down=self._linear(layer.down),
        )

    def _linear(self, linear: object) -> DenseLinear:
        parts = [linear] if isinstance(linear, DenseLinear) else getattr(linear, "parts", None)
        if not parts:
            raise ModelError(f"{type(linear).__name__} cannot be trained; load the weights in float32")
        return DenseLinear(self._learning(torch.cat([part.weight for part in parts])))

    def _learning(self, weight: Tensor) -> Tensor:
        learning = weight.detach().clone().requires_grad_()
        self.parameters.append(learning)
        return learning


class NetworkModel:
    """A folder of an architecture that our own network computes."""

    all_linear = TARGETS
    can_recompute = True

    def __init__(self, folder: Path, arch: Architecture, *, device: torch.device, dtype: torch.dtype) -> None:
        self._folder = folder
        self._device = device
        self._dtype = dtype
        self.vocab_size = arch.vocab_size
        self.network = self._open(folder, arch)
        self.reader = NetworkReader(self.network)

    def student(self, parent: Path | None, settings: TrainSettings, *, seed: int) -> Student:
        arch = self.network.arch
        if not settings.use_lora:
            return FullStudent(self.network if parent is None else self._open(parent, arch), source=self._folder)
        if parent is None:
            adapter = new_adapter(arch, settings, seed=seed, device=self._device)
        else:
            adapter = AdapterWeights.load(parent, arch, device=self._device, dtype=torch.float32)
        return AdapterStudent(self.network, adapter, dropout=settings.lora_dropout)

    def _open(self, folder: Path, arch: Architecture) -> Network:
        return Network(arch, load_weights(folder, arch, device=self._device, dtype=self._dtype), is_fused=True)


def new_adapter(arch: Architecture, settings: TrainSettings, *, seed: int, device: torch.device) -> AdapterWeights:
    """Where a line begins: an adapter that changes nothing yet."""
    return AdapterWeights.random(
        arch,
        rank=settings.lora_rank,
        alpha=settings.lora_alpha,
        targets=adapter_targets(settings.lora_target_modules),
        seed=seed,
        device=device,
        dtype=torch.float32,
    )


def adapter_targets(names: Sequence[str]) -> tuple[str, ...]:
    """`all-linear`, or the names of projections."""
    return TARGETS if tuple(names) == (ALL_LINEAR,) else tuple(names)

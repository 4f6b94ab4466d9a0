"""The weights that learn: an adapter on frozen weights, or all weights. Both behind one face.

    parameters   what the optimiser moves, one flat float32 tensor or many
    lora         what the network adds in a pass (None where its own weights learn)
    save         the folder that an engine loads

Knows no loss, no optimiser and no samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import TARGETS, AdapterWeights, LoraRows
from openclaw_rl.model.architecture import Architecture, Module
from openclaw_rl.model.network import DenseLinear, LayerWeights, Lora, Network, Weights
from openclaw_rl.model.saving import save_weights
from openclaw_rl.train.settings import TrainSettings

ALL_LINEAR = "all-linear"


class Student(Protocol):
    """What learns."""

    network: Network
    parameters: list[Tensor]

    def lora(self, num_tokens: int, *, dropout_seed: int | None = None) -> Lora | None:
        """What to add in a pass over so many tokens; with a seed, behind dropout."""
        ...

    def save(self, folder: Path) -> None: ...


class AdapterStudent:
    """An adapter learns, in float32 whatever the network computes in; the network stays as it is."""

    def __init__(self, network: Network, adapter: AdapterWeights, *, dropout: float) -> None:
        self.network = network
        self.adapter = adapter
        self._dropout = dropout
        self._flat = adapter.flat.requires_grad_()
        self.parameters = [self._flat]

    def lora(self, num_tokens: int, *, dropout_seed: int | None = None) -> Lora:
        # Views of the one tensor that learns, made anew for each pass: its gradient then arrives in one piece.
        views = self.adapter.over(self._flat.to(self.network.dtype))
        rows = LoraRows([(slice(0, num_tokens), views)])
        return rows if dropout_seed is None or not self._dropout else DroppedLora(rows, self._dropout, dropout_seed)

    def save(self, folder: Path) -> None:
        self.adapter.over(self._flat.detach()).save(folder)


class DroppedLora:
    """Dropout in front of an adapter. The same seed drops the same numbers, so that a layer can be computed twice."""

    def __init__(self, inner: Lora, share: float, seed: int) -> None:
        self._inner = inner
        self._share = share
        self._seed = seed

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        place = layer * 8 + ("qkv", "o", "gate_up", "down").index(module)
        generator = torch.Generator(x.device).manual_seed(self._seed * 1_000_003 + place)
        kept = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float32) >= self._share
        return self._inner.add(layer, module, x * kept.to(x.dtype) / (1 - self._share), y)


class FullStudent:
    """Every weight learns. The network is a copy: the mapped files that others read stay as they are."""

    def __init__(self, network: Network, *, source: Path) -> None:
        self._source = source
        self.parameters: list[Tensor] = []
        self.network = Network(network.arch, self._copied(network.weights))

    def lora(self, num_tokens: int, *, dropout_seed: int | None = None) -> None:
        return None

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

"""Architectures of others learn too: transformers computes, one sequence after the other; peft holds the adapter.

Slower than our own network, which reads all sequences of a part in one flat pass, but the same steps, teachers and
files. The sampler had no dropout inside the model, so neither has the student: only the adapter's own is ever on.
Knows no loss, no optimiser and no samples.

Axes: R rows of one response, H hidden, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector
from transformers.modeling_layers import GradientCheckpointingLayer

from openclaw_rl.errors import TrainError
from openclaw_rl.model.folder import sync_folder
from openclaw_rl.model.foreign import load_model, seeded, shared_copy
from openclaw_rl.model.foreign_adapter import Worn, linear_layers, load_adapter, new_adapter
from openclaw_rl.model.weights import copy_description
from openclaw_rl.train.objective.rows import DenseRows
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.reader import Follower, Reader, RereadingFollower, ResponseReading
from openclaw_rl.train.passes.sequences import Counter, Each, Sequenced
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.student import Student


class TransformersReader:
    """Reads with what `AutoModelForCausalLM` loads; `values` stand in for parameters of these names."""

    def __init__(self, model: Any, values: Mapping[str, Tensor] | None = None) -> None:
        self._model = model
        self._values = dict(values or {})
        self._head = model.get_output_embeddings()
        self.device: torch.device = model.device
        self.hidden_size: int = self._head.weight.shape[1]
        self.num_computed = 0

    @property
    def plain(self) -> Reader:
        return self

    def counter(self) -> Counter:
        return Each()

    def follower(self) -> Follower:
        return RereadingFollower(self)

    def read(
        self, sequences: Sequence[Sequenced], *, kept: Kept = ALL, dropout_seed: int | None = None
    ) -> list[ResponseReading]:
        self.num_computed += sum(map(len, sequences))
        recompute = kept.keep != "all" and torch.is_grad_enabled()
        if recompute and not self._model.is_gradient_checkpointing:
            self._enable_recomputing()
        for module in self._model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = recompute  # this layer alone, not what is in it: transformers asks for it
            elif isinstance(module, LoraLayer):
                module.lora_dropout.train(dropout_seed is not None)
        with nullcontext() if dropout_seed is None else seeded(dropout_seed, self.device):
            return [self._one(sequence) for sequence in sequences]

    def _one(self, sequence: Sequenced) -> ResponseReading:
        num_rows = len(sequence.response_ids)
        ids = torch.tensor([[*sequence.prompt_ids, *sequence.response_ids[:-1]]], device=self.device)
        into_head: list[Tensor] = []
        hook = self._head.register_forward_pre_hook(lambda _, inputs: into_head.append(inputs[0]))
        try:
            # The logits come from the model itself: some families scale or cap them behind the head.
            options = {"input_ids": ids, "use_cache": False, "logits_to_keep": num_rows}
            logits_RV = functional_call(self._model, self._values, (), options).logits[0, -num_rows:].float()
        finally:
            hook.remove()
        return ResponseReading(into_head[-1].flatten(0, -2)[-num_rows:], partial(DenseRows, logits_RV))

    def _enable_recomputing(self) -> None:
        if not self._model.supports_gradient_checkpointing:
            raise TrainError(
                f"{type(self._model).__name__} cannot compute activations again; set "
                "training.use_gradient_checkpointing=false"
            )
        self._model.gradient_checkpointing_enable({"use_reentrant": False})


class PeftStudent:
    """An adapter learns, in float32 whatever the model computes in."""

    def __init__(self, worn: Worn) -> None:
        self._worn = worn
        self._learning = {name: tensor for name, tensor in worn.model.named_parameters() if tensor.requires_grad}
        self.parameters: list[Tensor] = list(self._learning.values())
        self.reader = TransformersReader(worn.model)

    def vector(self) -> Tensor:
        return parameters_to_vector(self.parameters).detach()

    def averaged(self, flat: Tensor) -> Reader:
        parts = flat.split([tensor.numel() for tensor in self.parameters])
        shaped = (part.view_as(tensor) for part, tensor in zip(parts, self.parameters, strict=True))
        return TransformersReader(self._worn.model, dict(zip(self._learning, shaped, strict=True)))

    def save(self, folder: Path) -> None:
        self._worn.save(folder)


class WholeStudent:
    """Every weight learns."""

    def __init__(self, model: Any, *, source: Path) -> None:
        self._model = model.requires_grad_(True)
        self._source = source
        self.parameters: list[Tensor] = list(model.parameters())
        self.reader = TransformersReader(model)

    def vector(self) -> Tensor:
        return parameters_to_vector(self.parameters).detach()

    def averaged(self, flat: Tensor) -> Reader:
        raise AssertionError("only adapters are averaged")

    def save(self, folder: Path) -> None:
        self._model.save_pretrained(folder)
        copy_description(self._source, folder)
        sync_folder(folder)


class TransformersModel:
    """A folder that transformers loads."""

    def __init__(self, folder: Path, *, device: torch.device, dtype: torch.dtype) -> None:
        self._folder = folder
        self._device = device
        self._dtype = dtype
        self._model = load_model(folder, device=device, dtype=dtype)
        if self._model.get_output_embeddings() is None:
            raise TrainError(f"{folder} has no matrix that makes logits of hidden states; use a decoder for text")
        self.vocab_size: int = self._model.get_input_embeddings().num_embeddings
        self.can_recompute: bool = self._model.supports_gradient_checkpointing
        self.reader = TransformersReader(self._model)
        self.all_linear = tuple(sorted({path.rpartition(".")[2] for path in linear_layers(self._model)}))

    def student(self, parent: Path | None, settings: TrainSettings, *, seed: int) -> Student:
        if not settings.use_lora:
            if parent is None:
                return WholeStudent(copy.deepcopy(self._model), source=self._folder)
            return WholeStudent(load_model(parent, device=self._device, dtype=self._dtype), source=self._folder)
        plain = shared_copy(self._model)
        if parent is not None:
            return PeftStudent(load_adapter(plain, parent, dropout=settings.lora_dropout))
        return PeftStudent(
            new_adapter(
                plain,
                rank=settings.lora_rank,
                alpha=settings.lora_alpha,
                targets=settings.lora_target_modules,
                dropout=settings.lora_dropout,
                seed=seed,
            )
        )

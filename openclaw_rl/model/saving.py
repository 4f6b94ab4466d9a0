"""Weights in memory -> a checkpoint that `weights.load_weights`, transformers and engines load. Whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Architecture
from openclaw_rl.model.durable import sync_folder
from openclaw_rl.model.network import DenseLinear, LayerWeights, Linear, Weights

_COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def save_weights(weights: Weights, arch: Architecture, folder: Path, *, source: Path) -> None:
    """`source` is the model that it was trained from: its configuration and tokenizer go along."""
    folder.mkdir(parents=True)
    copy_description(source, folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _named(weights, arch)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    sync_folder(folder)


def copy_description(source: Path, folder: Path) -> None:
    """A model's files beside its weights: what describes it, and its tokenizer."""
    for name in _COPIED:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)


def _named(weights: Weights, arch: Architecture) -> Iterator[tuple[str, Tensor]]:
    yield "model.embed_tokens.weight", weights.embedding
    yield "model.norm.weight", weights.final_norm
    if not arch.tied_head:
        yield "lm_head.weight", _matrix(weights.head)
    for index, layer in enumerate(weights.layers):
        for name, tensor in _layer(layer, arch):
            yield f"model.layers.{index}.{name}.weight", tensor


def _layer(layer: LayerWeights, arch: Architecture) -> Iterator[tuple[str, Tensor]]:
    yield "input_layernorm", layer.input_norm
    yield "post_attention_layernorm", layer.post_norm
    if layer.q_norm is not None and layer.k_norm is not None:
        yield "self_attn.q_norm", layer.q_norm
        yield "self_attn.k_norm", layer.k_norm
    for module in MODULES:
        parts = arch.projections(module)
        split = torch.split(_matrix(getattr(layer, module)), [part.out_features for part in parts])
        for part, matrix in zip(parts, split, strict=True):
            yield part.name, matrix.clone()


def _matrix(linear: Linear) -> Tensor:
    if not isinstance(linear, DenseLinear):
        raise ModelError(f"{type(linear).__name__} cannot be saved; load the weights in float32")
    return linear.weight

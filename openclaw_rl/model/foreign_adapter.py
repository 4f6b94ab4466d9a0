"""A model that transformers loaded -> the same model wearing an adapter, through peft; and the adapter's folder.

Which layers wear one is found here, by their kind: the projections of the text's decoder. Not the output matrix, not
what reads pictures, and not the narrow layers that decide how much passes (routers, gates). Experts whose weights are
one fused tensor are no layers, so an adapter leaves them as they are; full fine-tuning changes them. A folder is what
`adapter.py` writes for our own network, with the same refusals. Knows no step, no version and no request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import (
    CONFIG_FILE,
    MAX_RANK,
    WEIGHTS_FILE,
    read_adapter_config,
    write_adapter_config,
)
from openclaw_rl.model.folder import sync_folder
from openclaw_rl.model.foreign import seeded
from openclaw_rl.types import Json

_GATES = frozenset({"gate", "router", "shared_expert_gate", "in_proj_a", "in_proj_b", "in_proj_ba"})
"""Routers, and what opens and closes a layer's state: as many outputs as experts or heads."""

_PREFIX = "base_model.model."
"""What peft writes before the path of a layer."""

_NAME = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worn:
    """`model` wearing an adapter on the layers `paths`."""

    model: Any
    paths: tuple[str, ...]
    rank: int
    alpha: float
    rslora: bool
    dropout: float

    def tensors(self) -> dict[str, nn.Parameter]:
        """Every A and B, by the name it has in a file."""
        return dict(self._named())

    def save(self, folder: Path) -> None:
        """Writes the folder that `load_adapter` and engines load; the same adapter gives the same bytes."""
        folder.mkdir(parents=True)
        shape = (self.rank, self.alpha, self.rslora, self._targets())
        write_adapter_config(folder, *shape, self.dropout)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self._named()}
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        sync_folder(folder)

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        for path in self.paths:
            layer = self.model.get_submodule(path)
            for kind in ("lora_A", "lora_B"):
                yield f"{_PREFIX}{path}.{kind}.weight", getattr(layer, kind)[_NAME].weight

    def _targets(self) -> list[str]:
        """Short names where they mean these layers and no others: peft and engines look for them anywhere."""
        short = _leaves(self.paths)
        meant = [path for path, _ in self.model.named_modules() if _leaf(path) in short and f".{_NAME}" not in path]
        return sorted(short) if set(meant) == set(self.paths) else sorted(self.paths)


def linear_layers(model: Any) -> dict[str, Any]:
    """By path, the layers that `all-linear` means."""
    return {path: layer for path, layer in _decoder_layers(model).items() if _leaf(path) not in _GATES}


def new_adapter(model: Any, *, rank: int, alpha: float, targets: Sequence[str], dropout: float, seed: int) -> Worn:
    """The model (a `shared_copy`) wearing an adapter that changes nothing yet; its weights are float32 and learn.

    `targets` are names of linear layers, or `all-linear` alone.
    """
    layers = linear_layers(model) if list(targets) == ["all-linear"] else _named_layers(model, targets)
    with seeded(seed, model.device):
        return _wear(model, list(layers), rank=rank, alpha=alpha, rslora=False, dropout=dropout)


def load_adapter(model: Any, folder: Path, *, dropout: float = 0.0) -> Worn:
    """The model (a `shared_copy`) wearing the adapter of a folder. Refuses what is not whole or not for this model."""
    config = read_adapter_config(folder)
    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} is missing or no whole safetensors file ({error}). Save the adapter again."
        ) from error
    rank = config["r"]
    if rank > MAX_RANK or any(len(tensor) != rank for name, tensor in tensors.items() if ".lora_A." in name):
        raise ModelError(f"{path} is not of rank {rank}, as {CONFIG_FILE} beside it says. Save the adapter again.")
    if not all(tensor.is_floating_point() and tensor.isfinite().all() for tensor in tensors.values()):
        raise ModelError(f"{path} holds numbers that are not finite. Publish an earlier adapter.")
    paths = _paths_in(tensors, model, config, path)
    options = {"rank": rank, "alpha": config["lora_alpha"], "rslora": bool(config.get("use_rslora"))}
    worn = _wear(model, paths, **options, dropout=dropout)
    with torch.no_grad():
        for name, tensor in worn.tensors().items():
            tensor.copy_(tensors[name])
    return worn


def _paths_in(tensors: Mapping[str, Tensor], model: Any, config: Mapping[str, Json], path: Path) -> list[str]:
    """The layers that a file is for, in the model's order: all that its config means.

    A string there is a pattern over module names, or "all-linear"; the tensors say what it meant.
    """
    targets: list[str] | str = config["target_modules"]
    if isinstance(targets, str):
        targets = [name.rpartition(".lora_")[0].removeprefix(_PREFIX) for name in tensors]
    layers = _chosen(_decoder_layers(model), targets)
    wanted: dict[str, tuple[int, ...]] = {}
    for place, layer in layers.items():
        out_features, in_features = layer.weight.shape[:: -1 if isinstance(layer, Conv1D) else 1]
        wanted[f"{_PREFIX}{place}.lora_A.weight"] = (config["r"], in_features)
        wanted[f"{_PREFIX}{place}.lora_B.weight"] = (out_features, config["r"])
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if odd := sorted(wanted.items() ^ found.items()):
        raise ModelError(f"{path} is for another model: they differ in {odd[0][0]}. Train or save it for this model.")
    return list(layers)


def _decoder_layers(model: Any) -> dict[str, Any]:
    """Every linear layer of what reads and writes text, by its path, but for the output matrix."""
    of_text, head = {id(module) for module in model.get_decoder().modules()}, model.get_output_embeddings()
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and id(module) in of_text and module is not head
    }


def _named_layers(model: Any, names: Sequence[str]) -> dict[str, Any]:
    known = _decoder_layers(model)
    for name in names:
        if not _chosen(known, [name]):
            fused = any(_leaf(path) == name and tensor.dim() > 2 for path, tensor in model.named_parameters())
            why = (
                "its experts' weights are one fused tensor, which training.use_lora=false trains."
                if fused
                else f"its linear layers are {', '.join(sorted(_leaves(known)))}."
            )
            raise ModelError(
                f"an adapter cannot target {name!r} here: {why} Set training.lora_target_modules to all-linear or to "
                "names of this model's linear layers."
            )
    return _chosen(known, names)


def _chosen(layers: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    exact, short = set(names), {name for name in names if "." not in name}
    dotted = [f".{name}" for name in names if "." in name]
    return {
        path: layer
        for path, layer in layers.items()
        if path in exact or _leaf(path) in short or any(path.endswith(name) for name in dotted)
    }


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _leaves(paths: Sequence[str] | Mapping[str, Any]) -> set[str]:
    return {_leaf(path) for path in paths}


class _Nameless(nn.Module):
    """A model without its config: where that tells peft of fused experts, it takes some layers' names for theirs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model


def _wear(model: Any, paths: Sequence[str], *, rank: int, alpha: float, rslora: bool, dropout: float) -> Worn:
    transposed = any(isinstance(module, Conv1D) for module in model.modules())  # GPT-2's kind of linear layers
    options: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "use_rslora": rslora, "lora_dropout": dropout}
    targets = [f"inner.{path}" for path in paths]
    config = peft.LoraConfig(target_modules=targets, bias="none", fan_in_fan_out=transposed, **options)
    peft.inject_adapter_in_model(config, _Nameless(model), adapter_name=_NAME)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.lora_A.float()
            module.lora_B.float()
    return Worn(model=model, paths=tuple(paths), rank=rank, alpha=alpha, rslora=rslora, dropout=dropout)

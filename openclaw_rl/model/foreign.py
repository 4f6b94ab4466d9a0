"""Architectures that our own network does not compute: a folder -> transformers' model; adapters on it through peft.

What learns or is served beside the base is a copy of its modules over the very same tensors, so that many adapters cost
one set of weights and none disturbs another. An adapter on disk is the folder that `adapter.py` writes for our network,
with the same refusals. Loads without pickle and without foreign code. Knows no step, no version and no request.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import CONFIG_FILE, MAX_RANK, WEIGHTS_FILE, read_adapter_config, write_adapter_config
from openclaw_rl.model.folder import sync_folder


def load_model(folder: Path, *, device: torch.device, dtype: torch.dtype) -> Any:
    """A decoder for text, frozen, ready to run."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        for name, value in config.to_dict().items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)  # what was sampled without dropout is trained without it
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        # What transformers raises for an unknown architecture, a missing or broken file, or a missing package.
        raise ModelError(f"transformers cannot load {folder}: {error}") from error
    model, report = loaded
    if report["missing_keys"]:
        # transformers would fill them with random numbers and only warn.
        raise ModelError(f"{folder} lacks weights of its architecture, such as {min(report['missing_keys'])}")
    return model.to(device).eval().requires_grad_(False)


def shared_copy(model: Any) -> Any:
    """The modules anew, over the same tensors."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def new_adapter(model: Any, *, rank: int, alpha: float, targets: Sequence[str], dropout: float, seed: int) -> Any:
    """The model (a `shared_copy`) wearing an adapter that changes nothing yet; its weights are float32 and learn.

    `targets` are names of linear layers, or `all-linear` alone.
    """
    chosen = targets[0] if list(targets) == ["all-linear"] else list(targets)
    with seeded(seed, model.device):
        return _wear(model, r=rank, lora_alpha=alpha, target_modules=chosen, lora_dropout=dropout)


def load_adapter(model: Any, folder: Path, *, dropout: float = 0.0) -> Any:
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
    options = {key: config[key] for key in ("r", "lora_alpha", "target_modules")}
    worn = _wear(model, **options, use_rslora=bool(config.get("use_rslora")), lora_dropout=dropout)
    wanted = {name: tensor.shape for name, tensor in peft.get_peft_model_state_dict(worn).items()}
    if wanted != {name: tensor.shape for name, tensor in tensors.items()}:
        odd = sorted({*wanted.items()} ^ {(name, tensor.shape) for name, tensor in tensors.items()})[0][0]
        raise ModelError(f"{path} is for another model: they differ in {odd}. Train or save it for this model.")
    peft.set_peft_model_state_dict(worn, tensors)
    return worn


def save_adapter(worn: Any, folder: Path) -> None:
    """Writes the folder that `load_adapter`, peft and engines load; the same adapter gives the same bytes."""
    folder.mkdir(parents=True)
    config = worn.peft_config["default"]
    targets = config.target_modules if isinstance(config.target_modules, str) else sorted(config.target_modules)
    shape = (config.r, config.lora_alpha, config.use_rslora, targets)
    write_adapter_config(folder, *shape, config.lora_dropout)
    state = peft.get_peft_model_state_dict(worn)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    sync_folder(folder)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """torch's own generators start at the seed; afterwards they go on as if nothing had been drawn."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)
        yield


def _wear(model: Any, **options: Any) -> Any:
    transposed = any(isinstance(module, Conv1D) for module in model.modules())  # GPT-2's kind of linear layers
    config = peft.LoraConfig(task_type="CAUSAL_LM", bias="none", fan_in_fan_out=transposed, **options)
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        raise ModelError(
            f"an adapter cannot target {options['target_modules']!r} here: {error} Set "
            "training.lora_target_modules to all-linear or to names of this model's linear layers."
        ) from error

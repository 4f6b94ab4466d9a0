"""Architectures that our own network does not compute: a folder -> transformers' model.

It is loaded as the class that its `config.json` names, so that what is saved has the checkpoint's own names, by which
every engine knows it. What learns or is served beside the base is a copy of its modules over the very same tensors, so
that many adapters cost one set of weights and none disturbs another. Loads without pickle and without foreign code.
Knows no adapter, no step, no version and no request.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from openclaw_rl.errors import ModelError


def load_model(folder: Path, *, device: torch.device, dtype: torch.dtype) -> Any:
    """A decoder for text, frozen, ready to run."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        for part in (config, config.get_text_config()):
            for name, value in part.to_dict().items():
                if "drop" in name and isinstance(value, float):
                    setattr(part, name, 0.0)  # what was sampled without dropout is trained without it
        loaded: Any = _class_of(config).from_pretrained(
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


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """torch's own generators start at the seed; afterwards they go on as if nothing had been drawn."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)
        yield


def _class_of(config: Any) -> Any:
    named = getattr(transformers, str((config.architectures or [""])[0]), None)
    is_model = isinstance(named, type) and issubclass(named, PreTrainedModel)
    return named if is_model else AutoModelForCausalLM

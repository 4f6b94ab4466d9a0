"""Architectures that our own network does not compute -> a `Runner` over transformers.

One forward pass for each piece and a cache of transformers' own for each strand: slower than our network, but the same
scheduler, the same prefix reuse and the same sampling. No adapters. Loads without pickle and without foreign code.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from openclaw_rl.engine.embedded.runner import Piece
from openclaw_rl.engine.embedded.sampling import Draws, Row
from openclaw_rl.errors import ModelError


@dataclass(slots=True)
class CacheStorage:
    """transformers' own cache, which grows by itself."""

    past: Any
    is_cuttable: bool
    """Not where layers forget: a window that has moved on cannot be moved back."""

    def resized(self, num_tokens: int, capacity: int) -> CacheStorage:
        # Copied also where a strand only grows: rare, and a strand never shares its cache with another.
        fresh = CacheStorage(copy.deepcopy(self.past), self.is_cuttable)
        fresh.cut(num_tokens)
        return fresh

    def cut(self, num_tokens: int) -> None:
        if self.past.get_seq_length() > num_tokens:
            self.past.crop(num_tokens)


class TransformersRunner:
    """Runs what `AutoModelForCausalLM` loads."""

    is_launch_bound = False

    def __init__(self, folder: Path, *, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self._model, self.context_window = _load(folder, dtype, device)
        config = self._model.config.get_text_config()
        self.vocab_size: int = self._model.get_input_embeddings().num_embeddings
        kinds = getattr(config, "layer_types", None) or ["full_attention"]
        has_window = getattr(config, "sliding_window", None) is not None
        self._is_cuttable = not has_window and set(kinds) == {"full_attention"}
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.bytes_per_token = 2 * config.num_hidden_layers * num_kv_heads * head_dim * dtype.itemsize

    def new_storage(self, _: int) -> CacheStorage:
        return CacheStorage(DynamicCache(config=self._model.config), self._is_cuttable)

    @torch.inference_mode()
    def run(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """As `NetworkRunner.run`, one piece after the other."""
        return [self._one(piece) for piece in pieces]

    def decode(self, pieces: Sequence[Piece], rows: Sequence[Row], positions: Sequence[int]) -> Draws | None:
        return None

    @torch.inference_mode()
    def logits(self, hidden_RH: Tensor) -> Tensor:
        """[R, V] in float32. Some families scale or cap them after the head; `_one` therefore hands logits through."""
        return hidden_RH

    def _one(self, piece: Piece) -> Tensor:
        storage: Any = piece.strand.storage
        output = self._model(
            input_ids=torch.tensor([list(piece.token_ids)], device=self.device),
            past_key_values=storage.past,
            use_cache=True,
            logits_to_keep=max(1, piece.num_wanted),
        )
        piece.strand.append(piece.token_ids, piece.version)
        logits: Tensor = output.logits[0].float()
        return logits if piece.num_wanted else logits[:0]


def _load(folder: Path, dtype: torch.dtype, device: torch.device) -> tuple[Any, int]:
    """The model, ready to run, and its context window."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
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
    window = getattr(config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(window, int):
        raise ModelError(f"{folder}/config.json does not say max_position_embeddings, the context window")
    return model.to(device).eval(), window

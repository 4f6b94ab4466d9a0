"""Architectures that our own network does not compute -> a `Runner` over transformers.

One forward pass for each piece and a cache of transformers' own for each strand: slower than our network, but the same
scheduler, the same prefix reuse and the same sampling. A version is a runner of its own: with an adapter, over the
tensors of the base.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

from openclaw_rl.engine.embedded.runner import SequencePiece
from openclaw_rl.engine.embedded.sampling import Draws, Row
from openclaw_rl.errors import ModelError
from openclaw_rl.model.foreign import load_model, shared_copy
from openclaw_rl.model.foreign_adapter import load_adapter


@dataclass(slots=True)
class CacheStorage:
    """transformers' own cache, which grows by itself."""

    past: Any
    is_cuttable: bool
    """Not where layers forget: a window that has moved on, or a state, cannot be moved back."""

    def resized(self, num_tokens: int, capacity: int) -> CacheStorage:
        # Copied also where a strand only grows: rare, and a strand never shares its cache with another.
        fresh = CacheStorage(copy.deepcopy(self.past), self.is_cuttable)
        fresh.cut(num_tokens)
        return fresh

    def cut(self, num_tokens: int) -> None:
        if (surplus := self.past.get_seq_length() - num_tokens) > 0:
            self.past.crop(-surplus)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What a model's cache takes, measured with one token of one sequence."""

    is_cuttable: bool
    bytes_per_token: int
    state_bytes: int
    """What each sequence takes however long it is: the states of layers that keep no keys and values."""

    @classmethod
    def of(cls, model: Any) -> CacheShape:
        cache = DynamicCache(config=model.config)
        with torch.inference_mode():
            model(input_ids=torch.tensor([[0]], device=model.device), past_key_values=cache, use_cache=True)
        growing: list[Any] = [layer for layer in cache.layers if isinstance(layer, DynamicLayer)]
        keeping: list[Any] = [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]
        states = [
            state
            for layer in keeping
            for kind in (layer.conv_states, layer.recurrent_states)
            for state in kind.values()
        ]
        return cls(
            is_cuttable=all(type(layer) is DynamicLayer for layer in cache.layers),
            bytes_per_token=sum(layer.keys.nbytes + layer.values.nbytes for layer in growing),
            state_bytes=sum(state.nbytes for state in states if state is not None),
        )


class TransformersRunner:
    """Runs what `load_model` loads."""

    is_launch_bound = False
    max_adapters = 1 << 30  # no place of their own is set aside for them

    def __init__(
        self, model: Any, *, device: torch.device, dtype: torch.dtype, shape: CacheShape | None = None
    ) -> None:
        self.device = device
        self._model = model
        self._dtype = dtype
        config = model.config.get_text_config()
        window = getattr(config, "max_position_embeddings", None)
        if not isinstance(window, int):
            raise ModelError(f"{model.name_or_path}/config.json does not say max_position_embeddings, the window")
        self.context_window: int = window
        self.vocab_size: int = self._model.get_input_embeddings().num_embeddings
        self.num_layers: int = config.num_hidden_layers
        self._shape = shape or CacheShape.of(model)
        self.bytes_per_token = self._shape.bytes_per_token
        self.bytes_per_strand = self._shape.state_bytes

    @classmethod
    def load(cls, folder: Path, *, device: torch.device, dtype: torch.dtype) -> Self:
        """The model of a folder."""
        return cls(load_model(folder, device=device, dtype=dtype), device=device, dtype=dtype)

    def with_adapter(self, folder: Path) -> Self:
        """The same model wearing an adapter that was published."""
        worn = load_adapter(shared_copy(self._model), folder)
        return type(self)(worn.model.eval(), device=self.device, dtype=self._dtype, shape=self._shape)

    def with_weights(self, folder: Path) -> Self:
        """Another set of weights for the same architecture."""
        other = load_model(folder, device=self.device, dtype=self._dtype)
        if _shapes(other) != _shapes(self._model):
            raise ModelError(f"{folder} has another architecture than the served model")
        if not all(tensor.isfinite().all() for tensor in other.parameters()):
            raise ModelError(f"{folder} holds numbers that are not finite. Publish an earlier version.")
        return type(self)(other, device=self.device, dtype=self._dtype, shape=self._shape)

    def new_storage(self, _: int) -> CacheStorage:
        return CacheStorage(DynamicCache(config=self._model.config), self._shape.is_cuttable)

    @torch.inference_mode()
    def run(self, pieces: Sequence[SequencePiece]) -> list[Tensor]:
        """As `NetworkRunner.run`, one piece after the other."""
        return [self._one(piece) for piece in pieces]

    @torch.inference_mode()
    def read_last(self, sequences: Sequence[Sequence[int]], layer: int) -> Tensor:
        """As `NetworkRunner.read_last`, one sequence after the other, through all layers."""
        return torch.stack([self._hidden_states(ids)[layer][0, -1] for ids in sequences]).float().cpu()

    def _hidden_states(self, ids: Sequence[int]) -> Any:
        ids_BL = torch.tensor([list(ids)], device=self.device)
        return self._model(input_ids=ids_BL, use_cache=False, output_hidden_states=True, logits_to_keep=1).hidden_states

    def decode(self, pieces: Sequence[SequencePiece], rows: Sequence[Row], positions: Sequence[int]) -> Draws | None:
        return None

    @torch.inference_mode()
    def logits(self, hidden_RH: Tensor) -> Tensor:
        """[R, V] in float32. Some families scale or cap them after the head; `_one` therefore hands logits through."""
        return hidden_RH

    def _one(self, piece: SequencePiece) -> Tensor:
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


def _shapes(model: Any) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.named_parameters()}

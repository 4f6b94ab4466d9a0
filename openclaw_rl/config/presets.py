"""Presets: named sets of values that take the place of the class defaults. Whatever anybody sets is stronger.

What differs between them, and why, is the table in docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

_BOOL = TypeAdapter(bool)

_PUBLISHED: Mapping[str, Any] = {
    "advantage": "raw",
    "binary_weight": 1.0,
    "unhinted_opd": True,
    "hint_placement": "last_user",
    "truncated": "score",
    "claims": "learn",
    "accepted_rewrites": False,
    "importance_clip": None,
    "max_staleness": None,
    "replay_max_age": 0,
    "anchors": 0,
    "exercises": 0,
    "logprob_temperature": 0.6,
    "batch_size": 16,
    "max_wait_s": None,
    "learning_rate": 1e-5,
    "num_epochs": 1,
    "adam_betas": (0.9, 0.98),
    "weight_decay": 0.1,
    "batching": "plain",
    "micro_batch_tokens": 4096,
    "use_gradient_checkpointing": True,
    "save_every": 100,
}
_OURS_WITHOUT_ADAPTER: Mapping[str, Any] = {"learning_rate": 1e-5, "num_epochs": 1}
_PUBLISHED_ADAPTER: Mapping[str, Any] = {"lora_rank": 64, "lora_alpha": 64.0, "num_epochs": 2}


def preset_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that the preset among these values, by dotted key, moves; unknown names are the tree's business."""
    has_adapter = _has_adapter(values.get("training.use_lora", True))
    if values.get("training.preset") == "reference":
        chosen = {**_PUBLISHED, **_PUBLISHED_ADAPTER} if has_adapter else _PUBLISHED
    else:
        chosen = {} if has_adapter else _OURS_WITHOUT_ADAPTER
    return {f"training.{name}": value for name, value in chosen.items()}


def _has_adapter(written: Any) -> bool:
    """As the tree will read it: sources write false in several ways, and what is neither is the tree's business."""
    try:
        return _BOOL.validate_python(written)
    except ValidationError:
        return True

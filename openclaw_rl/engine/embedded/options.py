"""What the command line of the embedded worker carries. Knows no torch, so that a mistake is found before it loads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from openclaw_rl.errors import ConfigError
from openclaw_rl.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """`auto` is CUDA where there is one, bfloat16 there and float32 on a CPU.

    `prefill_chunk` tokens of prompts at most go into one step: that long running answers wait for a newcomer. Null
    is 256 on a CPU (0.6 s of the 135M model on one busy core) and 2,048 on a GPU. `kv_bytes` null is measured. The
    process sees the GPUs `gpu_ids`, or all.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    weights: Literal["auto", "float32", "quantised"] = "auto"
    threads: int | None = None
    context_window: int | None = None
    kv_bytes: int | None = None
    kv_after_update: str = "reuse(4)"
    max_active: int = 8
    max_queued: int = 256
    max_adapters: int = 32
    prefill_chunk: int | None = None
    gpu_ids: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, raw: Json) -> EmbeddedOptions:
        """Options as the command line carries them."""
        known = [field.name for field in fields(cls)]
        if not isinstance(raw, dict) or not set(raw) <= set(known):
            raise ConfigError(f"the embedded engine's options are {', '.join(known)}; got {raw!r}")
        return cls(**{**raw, "gpu_ids": tuple(raw.get("gpu_ids", ()))})

"""A checkpoint's `config.json` becomes the shape of a network that `network.py` computes, or None.

None means: another family, or an option that changes the maths in a way written nowhere here; whoever asked then falls
back to transformers. A known family with a missing or impossible number is a ModelError. Knows no weights and no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openclaw_rl.errors import ModelError
from openclaw_rl.types import Json

Module = Literal["qkv", "o", "gate_up", "down"]
"""The fused projections of a layer: what is computed in one product."""

MODULES: Mapping[Module, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""The checkpoint's names of the parts that each fused projection stacks, in the order of its output."""

_FAMILIES: Mapping[str, Literal["llama", "qwen3"]] = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """Positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1's: long wavelengths are stretched by `factor`, short ones stay, those between are blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """How positions turn queries and keys."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One weight matrix of a layer, [out, in], by the checkpoint's name."""

    name: str
    out_features: int
    in_features: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The numbers of a decoder: RMS norms, rotary attention with shared key/value heads, SwiGLU, no biases.

    >>> Architecture.from_config(json.loads((folder / "config.json").read_text()))   # the embedded model
    Architecture(family='llama', num_layers=30, hidden_size=576, mlp_size=1536, num_heads=9, num_kv_heads=3,
                 head_dim=64, vocab_size=49152, rms_eps=1e-05, rope=Rope(theta=100000.0, scaling=None), qk_norm=False,
                 tied_head=True, context_window=8192)
    """

    family: Literal["llama", "qwen3"]
    num_layers: int
    hidden_size: int
    mlp_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_eps: float
    rope: Rope
    qk_norm: bool
    """Whether each query and key head is normed before it is turned (Qwen3)."""
    tied_head: bool
    """Whether the embedding is also the output matrix."""
    context_window: int

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"config.json has {self.num_heads} attention heads for {self.num_kv_heads} key/value heads, which is "
                "no multiple. Save the model again."
            )
        if self.head_dim % 2:
            raise ModelError(
                f"config.json has head_dim {self.head_dim}; RoPE turns pairs, so it must be even. Save the model again."
            )

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    def projections(self, module: Module) -> tuple[Projection, ...]:
        """The matrices that a fused projection stacks, in order."""
        outs: Mapping[Module, tuple[int, ...]] = {
            "qkv": (self.query_size, self.kv_size, self.kv_size),
            "o": (self.hidden_size,),
            "gate_up": (self.mlp_size, self.mlp_size),
            "down": (self.hidden_size,),
        }
        in_features = {"o": self.query_size, "down": self.mlp_size}.get(module, self.hidden_size)
        return tuple(
            Projection(name=name, out_features=out, in_features=in_features)
            for name, out in zip(MODULES[module], outs[module], strict=True)
        )

    @classmethod
    def from_config(cls, raw: Mapping[str, Json]) -> Architecture | None:
        """The architecture of a parsed `config.json`; None if the network here cannot compute it exactly."""
        names = raw.get("architectures")
        family = _FAMILIES.get(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else None
        if family is None or _changes_the_maths(raw):
            return None
        window = _count(raw, "max_position_embeddings")
        rope = _rope(raw, window)
        if rope is None:
            return None
        num_heads = _count(raw, "num_attention_heads")
        hidden_size = _count(raw, "hidden_size")
        if family == "llama":  # checkpoints older than these keys leave them out
            given = {key: value for key, value in raw.items() if value is not None}
            raw = {"num_key_value_heads": num_heads, "head_dim": hidden_size // num_heads, **given}
        return cls(
            family=family,
            num_layers=_count(raw, "num_hidden_layers"),
            hidden_size=hidden_size,
            mlp_size=_count(raw, "intermediate_size"),
            num_heads=num_heads,
            num_kv_heads=_count(raw, "num_key_value_heads"),
            head_dim=_count(raw, "head_dim"),
            vocab_size=_count(raw, "vocab_size"),
            rms_eps=_number(raw, "rms_norm_eps"),
            rope=rope,
            qk_norm=family == "qwen3",
            tied_head=_flag(raw, "tie_word_embeddings"),
            context_window=window,
        )


def read_architecture(folder: Path) -> Architecture | None:
    """What the folder's config.json describes; None if our own network does not compute it."""
    try:
        return Architecture.from_config(json.loads((folder / "config.json").read_bytes()))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} cannot be read: {error}") from error


def _changes_the_maths(raw: Mapping[str, Json]) -> bool:
    """The options that transformers' Llama and Qwen3 read and that the network here does not compute."""
    layer_types = raw.get("layer_types") or []
    return (
        any(raw.get(key) for key in ("attention_bias", "mlp_bias", "use_sliding_window", "quantization_config"))
        or raw.get("hidden_act", "silu") != "silu"
        or any(kind != "full_attention" for kind in layer_types)
    )


def _rope(raw: Mapping[str, Json], window: int) -> Rope | None:
    """From the keys of transformers 4 (`rope_theta`, `rope_scaling`) or of 5 (`rope_parameters`); None: another kind.

    Where both are given the parameters' own theta counts, as in transformers.
    """
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        return None  # a rotation for each kind of layer
    given = {"partial_rotary_factor": raw.get("partial_rotary_factor"), "rope_theta": raw.get("rope_theta"), **given}
    if given["partial_rotary_factor"] not in (None, 1):
        return None
    theta = 10_000.0 if given["rope_theta"] is None else _number(given, "rope_theta")
    match given.get("rope_type", given.get("type", "default")):
        case "default":
            return Rope(theta=theta)
        case "linear":
            return Rope(theta=theta, scaling=LinearScaling(factor=_number(given, "factor")))
        case "llama3":
            outside = {"original_max_position_embeddings": window, **given}
            if raw.get("original_max_position_embeddings") is not None:
                outside["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
            scaling = Llama3Scaling(
                factor=_number(given, "factor"),
                low_freq_factor=_number(given, "low_freq_factor"),
                high_freq_factor=_number(given, "high_freq_factor"),
                original_context=_count(outside, "original_max_position_embeddings"),
            )
            if scaling.high_freq_factor <= scaling.low_freq_factor:
                raise _wrong("high_freq_factor", scaling.high_freq_factor, f"more than {scaling.low_freq_factor}")
            return Rope(theta=theta, scaling=scaling)
    return None


def _count(raw: Mapping[str, Json], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(key, value, "a whole number above 0")
    return value


def _number(raw: Mapping[str, Json], key: str) -> float:
    value = raw.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise _wrong(key, value, "a number above 0")
    return float(value)


def _flag(raw: Mapping[str, Json], key: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def _wrong(key: str, value: Json, wanted: str) -> ModelError:
    got = "is missing" if value is None else f"is {value!r}"
    return ModelError(f"{key} in config.json {got}, but must be {wanted}. Save the model again.")

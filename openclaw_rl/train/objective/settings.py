"""The values of `training.*` that the loss reads, as a worker receives them: names are those of the settings tree.

Knows no file and no environment; what a key means to people, and most defaults, stand in config/learning.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from openclaw_rl.types.checks import require

HintSelection = Literal["sequence_optimal", "token_optimal", "shortest"]
SubsetMode = Literal["student", "teacher", "overlap", "union"]
Distillation = Literal["topk", "token", "reverse_kl", "forward_kl"]
KlType = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """What a value means beyond its name is in docs/algorithms.md. Options have defaults: off, and free when off."""

    ppo_clip_ratio: float
    ppo_clip_ratio_high: float | None
    """None = as the lower one."""
    top_k: int
    hint_selection: HintSelection
    subset_mode: SubsetMode
    adv_diff_clip: float
    """0 = no limit."""
    kl_coef: float
    distillation: Distillation = "topk"
    teacher_top_k: int = 16
    importance_clip: float | None = None
    """Largest importance weight; None = no correction."""
    sequence_ratio: bool = False
    dual_clip: float | None = None
    kl_type: KlType = "k3"
    entropy_coef: float = 0.0
    critic: bool = False
    value_coef: float = 0.5
    value_clip: bool = False
    value_clip_ratio: float = 0.2
    gae_lambda: float = 0.95

    def __post_init__(self) -> None:
        require(0 < self.ppo_clip_ratio < 1, f"ppo_clip_ratio must lie between 0 and 1, got {self.ppo_clip_ratio}")
        require(self.clip_high > 0, f"ppo_clip_ratio_high must be positive, got {self.clip_high}")
        for name in ("top_k", "teacher_top_k"):
            require(getattr(self, name) > 0, f"{name} must be positive, got {getattr(self, name)}")
        for name in ("adv_diff_clip", "kl_coef", "entropy_coef"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, got {getattr(self, name)}")
        require(self.importance_clip is None or self.importance_clip > 0, "importance_clip must be positive, or null")
        require(self.value_coef > 0, f"value_coef must be positive, got {self.value_coef}")
        require(self.value_clip_ratio > 0, f"value_clip_ratio must be positive, got {self.value_clip_ratio}")
        require(0 <= self.gae_lambda <= 1, f"gae_lambda must lie between 0 and 1, got {self.gae_lambda}")
        require(self.dual_clip is None or self.dual_clip > 1, f"dual_clip must exceed 1, got {self.dual_clip}")

    @property
    def clip_low(self) -> float:
        return self.ppo_clip_ratio

    @property
    def clip_high(self) -> float:
        return self.ppo_clip_ratio if self.ppo_clip_ratio_high is None else self.ppo_clip_ratio_high

    @classmethod
    def from_training(cls, values: Mapping[str, Any]) -> LossSettings:
        """Picks its own out of all values of the section `training`."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

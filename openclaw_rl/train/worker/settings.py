"""The values of `training.*` that a trainer reads beside those of the loss, as it receives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from openclaw_rl.types.checks import require

Teacher = Literal["base", "current", "ema", "path"]
Batching = Literal["tree", "plain"]
Demonstrations = Literal["off", "turns", "turns_and_exercises"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Names and meanings are those of config/learning.py."""

    learning_rate: float
    warmup_steps: int
    num_epochs: int
    gradient_accumulation_steps: int
    micro_batch_tokens: int | None
    batching: Batching
    clip_grad_norm: float
    weight_decay: float
    adam_betas: tuple[float, float]
    use_gradient_checkpointing: bool | None
    offload_activations: bool
    loss_per_token: bool
    anchor_weight: float
    logprob_temperature: float | None
    critic: bool
    teacher: Teacher
    teacher_path: str | None
    teacher_url: str | None
    teacher_model: str | None
    teacher_temperature: float
    ema_decay: float
    use_lora: bool
    lora_rank: int
    lora_alpha: float
    lora_dropout: float
    lora_target_modules: tuple[str, ...]
    custom_loss: str | None
    demonstrations: Demonstrations

    def __post_init__(self) -> None:
        has_own = self.teacher_path is not None or self.teacher_url is not None
        require(self.teacher != "path" or has_own, "training.teacher: path needs teacher_path or teacher_url")
        require(
            self.teacher_path is None or self.teacher_url is None,
            "training.teacher_path and training.teacher_url are two teachers; keep one",
        )

    @classmethod
    def from_training(cls, values: Mapping[str, Any]) -> Self:
        """Picks its own out of all values of the section `training`."""
        chosen: dict[str, Any] = {field.name: values[field.name] for field in fields(cls)}
        for name in ("adam_betas", "lora_target_modules"):
            chosen[name] = tuple(chosen[name])
        if chosen["teacher"] is None:
            has_own = chosen["teacher_path"] is not None or chosen["teacher_url"] is not None
            chosen["teacher"] = "path" if has_own else "base"
        return cls(**chosen)

    def temperature_of(self, sampled_at: float) -> float:
        """What the logits behind an answer that was sampled at this temperature are divided by."""
        return sampled_at if self.logprob_temperature is None else self.logprob_temperature

    def learning_rate_at(self, step: int) -> float:
        """Rises in a straight line over `warmup_steps` steps, then stays. Steps count from 1."""
        return self.learning_rate * min(1.0, step / max(1, self.warmup_steps))

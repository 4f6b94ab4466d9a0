"""Settings of an adapter -> the form that a service gives it, or why it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openclaw_rl.cloud.service import Form
from openclaw_rl.errors import ConfigError
from openclaw_rl.train.worker.settings import TrainSettings

_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
_MLP = frozenset({"gate_proj", "up_proj", "down_proj"})
ALPHA = 32.0
"""The scale that services give every adapter."""

_ONLY: Mapping[str, tuple[Any, ...]] = {
    "use_lora": (True,),
    "lora_dropout": (0.0,),
    "critic": (False,),
    "entropy_coef": (0.0,),
    "custom_loss": (None,),
    "logprob_temperature": (1.0,),
    "teacher_temperature": (1.0,),
    "teacher": (None, "base", "current"),
    "lora_alpha": (ALPHA,),
}
"""What a service can follow, where it cannot follow everything."""


def check_form(training: Mapping[str, Any]) -> None:
    """`ConfigError`, in one sentence, for settings that a service cannot follow."""
    for name, values in _ONLY.items():
        if training[name] not in values:
            able = " or ".join("null" if one is None else str(one).lower() for one in values)
            raise ConfigError(
                f"training.{name}={training[name]}: training.backend={training['backend']} can do {able} only; "
                "set it so, or use training.backend=local"
            )
    _parts(training["lora_target_modules"])


def form_of(settings: TrainSettings, *, seed: int) -> Form:
    attention, mlp = _parts(settings.lora_target_modules)
    return Form(rank=settings.lora_rank, seed=seed, attention=attention, mlp=mlp)


def _parts(names: Sequence[str]) -> tuple[bool, bool]:
    """Whether attention and MLP have an adapter: services know these two, and no layers."""
    wanted = set(names)
    if wanted == {"all-linear"}:
        return True, True
    attention, mlp = wanted >= _ATTENTION, wanted >= _MLP
    if wanted != (_ATTENTION if attention else set()) | (_MLP if mlp else set()) or not wanted:
        raise ConfigError(
            f"training.lora_target_modules={','.join(names)}: a service trains all projections of attention "
            f"({','.join(sorted(_ATTENTION))}), of the MLP ({','.join(sorted(_MLP))}), or both (all-linear)"
        )
    return attention, mlp

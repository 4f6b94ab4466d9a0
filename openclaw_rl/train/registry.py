"""The trainers by `training.backend`: one line for each. Nobody else asks which one it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.config import Config
from openclaw_rl.config.tree import CLOUDS
from openclaw_rl.errors import ConfigError
from openclaw_rl.protocols import Trainer, WeightsKeeper
from openclaw_rl.train.cloud.trainer import CloudTrainer, CloudWeights
from openclaw_rl.train.fsdp.trainer import fsdp_trainer
from openclaw_rl.train.local import LocalTrainer, LocalWeights, versions_folder
from openclaw_rl.train.losses import check_loss

TRAINERS: Mapping[str, tuple[Callable[[Config, Path], Trainer], Callable[[Config], WeightsKeeper]]] = {
    "local": (LocalTrainer.of, lambda config: LocalWeights(versions_folder(config))),
    "fsdp": (fsdp_trainer, lambda config: LocalWeights(versions_folder(config))),
    **dict.fromkeys(
        CLOUDS, (CloudTrainer.of, lambda config: CloudWeights(versions_folder(config), ServiceDesk.of(config)))
    ),
}
"""By name: how the trainer of a model's folder is made, and what keeps its weights where nobody trains."""


def new_trainer(config: Config, model: Path) -> Trainer:
    """As configured. It starts nothing before its first order."""
    trainer = _known(config)[0](config, model)
    training, can = config.training, trainer.capabilities
    unable = {
        "training.use_lora=true": training.use_lora and not can.lora,
        "training.use_lora=false": not training.use_lora and not can.full_weights,
        "training.custom_loss": training.custom_loss is not None and not can.custom_loss,
        "the proof of a version, which compares log-probs,": not can.scores,
    }
    for what, is_asked in unable.items():
        if is_asked:
            raise ConfigError(f"training.backend={training.backend} cannot do {what}; use training.backend=local")
    if training.custom_loss is not None:
        check_loss(training.custom_loss)
    return trainer


def make_keeper(config: Config) -> WeightsKeeper:
    """Keeps versions' weights for commands that train nothing."""
    return _known(config)[1](config)


def _known(config: Config) -> tuple[Callable[[Config, Path], Trainer], Callable[[Config], WeightsKeeper]]:
    backend = config.training.backend
    if backend not in TRAINERS:
        raise ConfigError(f"training.backend={backend} is not here yet; known: {', '.join(TRAINERS)}")
    return TRAINERS[backend]

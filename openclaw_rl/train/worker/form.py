"""Weights that a step starts from, and the settings -> nothing, or why one does not fit the other.

Weights keep their form: an adapter has the rank, scale and layers it was begun with, and no adapter becomes a whole
model. Other settings than those would be ignored, or could not be loaded. Reads one small file and no tensor.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.errors import TrainError
from openclaw_rl.model.adapter import CONFIG_FILE
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.student import ALL_LINEAR

_ANEW = "or begin anew from the base model with `openclaw-rl rollback 0`"


def check_form(weights: Path, settings: TrainSettings, *, all_linear: tuple[str, ...], name: str) -> None:
    """`TrainError` if the settings ask for another form than the version `name` has in the folder `weights`.

    `all_linear` are the layers that this means for the model.
    """
    if not weights.is_dir():
        return  # whoever loads it says so
    is_adapter = (weights / CONFIG_FILE).is_file()
    if is_adapter != settings.use_lora:
        form = "an adapter" if is_adapter else "a whole model"
        raise TrainError(
            f"{name} is {form}, and training.use_lora is {str(settings.use_lora).lower()}; set it to "
            f"{str(is_adapter).lower()} to go on from {name}, {_ANEW}"
        )
    if not is_adapter:
        return
    found, wanted = _written(weights / CONFIG_FILE), _wanted(settings, all_linear)
    if differing := [key for key in found if found[key] != wanted[key]]:
        told = " and ".join(f"training.{key}={found[key]}, not {wanted[key]}" for key in differing)
        raise TrainError(f"{name} was made with {told}; set it so to go on from {name}, {_ANEW}")


def _written(path: Path) -> dict[str, str]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return _told(config["r"], config["lora_alpha"], config["target_modules"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"{path} cannot be read ({error!r}); roll back to an earlier version") from error


def _wanted(settings: TrainSettings, all_linear: tuple[str, ...]) -> dict[str, str]:
    names: Sequence[str] = settings.lora_target_modules
    if tuple(names) == (ALL_LINEAR,):
        names = all_linear
    return _told(settings.lora_rank, settings.lora_alpha, names)


def _told(rank: int, alpha: float, targets: Sequence[str]) -> dict[str, str]:
    told = {"lora_rank": str(rank), "lora_alpha": f"{float(alpha):g}"}
    if isinstance(targets, str):
        return told  # a pattern, from elsewhere: what it means is not written here
    return {**told, "lora_target_modules": ",".join(sorted({name.rpartition(".")[2] for name in targets}))}

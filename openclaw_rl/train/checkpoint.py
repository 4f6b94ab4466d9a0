"""A line's state on disk: whole or not there at all.

    CHECKPOINT/
      weights/                 what an engine loads: a PEFT adapter, or a whole model
      trainer/optimiser.safetensors
      trainer/average.safetensors   the slow average, where a teacher or the settings ask for one
      trainer/state.json       format, step

It is written beside its place, forced to the disk and renamed. No pickle.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from openclaw_rl.errors import TrainError
from openclaw_rl.model.durable import sync, sync_folder

WEIGHTS = "weights"
_TRAINER, _OPTIMISER, _AVERAGE, _STATE = "trainer", "optimiser.safetensors", "average.safetensors", "state.json"
_FORMAT = 1


def save_checkpoint(
    target: Path,
    *,
    save_weights: Callable[[Path], None],
    optimiser: torch.optim.Optimizer,
    average: Tensor | None,
    step: int,
) -> None:
    """Returns when all of it is on the disk. What an earlier, interrupted attempt left is overwritten."""
    work = target.with_name(f".{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    trainer = work / _TRAINER
    trainer.mkdir(parents=True)
    save_weights(work / WEIGHTS)
    save_file(_optimiser_tensors(optimiser), trainer / _OPTIMISER)
    if average is not None:
        save_file({"flat": average}, trainer / _AVERAGE)
    (trainer / _STATE).write_text(json.dumps({"format": _FORMAT, "step": step}) + "\n", encoding="utf-8")
    sync_folder(trainer)
    sync(work)
    work.rename(target)
    sync(target.parent)


def load_optimiser(checkpoint: Path, optimiser: torch.optim.Optimizer, *, step: int) -> None:
    """Gives a fresh optimiser the state it had when the checkpoint, which must be that of `step`, was saved."""
    try:
        state = json.loads((checkpoint / _TRAINER / _STATE).read_text(encoding="utf-8"))
        tensors = load_file(checkpoint / _TRAINER / _OPTIMISER)
    except (OSError, ValueError, SafetensorError) as error:
        raise TrainError(
            f"the checkpoint {checkpoint} cannot be read ({error}); roll back to an earlier one"
        ) from error
    if state != {"format": _FORMAT, "step": step}:
        raise TrainError(f"{checkpoint} is {state}, but step {step} of format {_FORMAT} was expected")
    by_parameter: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, kind = name.partition(".")
        by_parameter.setdefault(int(index), {})[kind] = tensor
    full = optimiser.state_dict()
    full["state"] = by_parameter
    optimiser.load_state_dict(full)


def load_average(checkpoint: Path) -> Tensor | None:
    """The slow average; None if none was kept."""
    path = checkpoint / _TRAINER / _AVERAGE
    return load_file(path)["flat"] if path.exists() else None


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {
        f"{index}.{kind}": value.detach().cpu().contiguous()
        for index, kinds in state.items()
        for kind, value in kinds.items()
    }

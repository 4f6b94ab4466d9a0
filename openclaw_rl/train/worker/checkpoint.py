"""A line's state on disk: whole or not there at all.

    CHECKPOINT/
      weights/                 what an engine loads: a PEFT adapter, or a whole model
      trainer/optimiser.safetensors
      trainer/average.safetensors   the slow average, where a teacher or the settings ask for one
      trainer/critic.safetensors    the critic, where there is one
      trainer/state.json       format, step

It is written beside its place, forced to the disk and renamed. No pickle. Weights that came from elsewhere have no
folder `trainer`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from openclaw_rl.errors import TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.model.folder import sync, sync_folder, unfinished

WEIGHTS = "weights"
_TRAINER, _OPTIMISER, _AVERAGE, _STATE = "trainer", "optimiser.safetensors", "average.safetensors", "state.json"
_CRITIC = "critic.safetensors"
_FORMAT = 1


def save_checkpoint(
    target: Path,
    *,
    save_weights: Callable[[Path], None],
    optimiser: torch.optim.Optimizer,
    average: Tensor | None,
    step: int,
    critic: Mapping[str, Tensor] | None = None,
) -> None:
    """Returns when all of it is on the disk; `TrainError`, and nothing is left of it, if it cannot be written.

    What an earlier, interrupted attempt left is overwritten.
    """
    with _beside(target) as work:
        trainer = work / _TRAINER
        for folder in (work, trainer):  # one by one: the mode is not that of parents
            folder.mkdir(mode=0o700, parents=True)
        save_weights(work / WEIGHTS)
        crash_point("trainer.in_checkpoint")
        save_file(_optimiser_tensors(optimiser), trainer / _OPTIMISER)
        if average is not None:
            save_file({"flat": average}, trainer / _AVERAGE)
        if critic is not None:
            save_file({name: tensor.cpu() for name, tensor in critic.items()}, trainer / _CRITIC)
        (trainer / _STATE).write_text(json.dumps({"format": _FORMAT, "step": step}) + "\n", encoding="utf-8")
        sync_folder(trainer)
        sync(work)
        crash_point("trainer.before_rename")
        work.rename(target)
        sync(target.parent)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    work = unfinished(target)
    shutil.rmtree(work, ignore_errors=True)
    try:
        yield work
    except (OSError, SafetensorError) as error:  # safetensors has its own for a disk that is full
        shutil.rmtree(work, ignore_errors=True)
        raise TrainError(
            f"no checkpoint can be written to {target.parent} ({error}); free some space there, or set "
            "training.save_path to a folder that has room"
        ) from error


def load_optimiser(checkpoint: Path, optimiser: torch.optim.Optimizer, *, step: int) -> None:
    """Gives a fresh optimiser the state it had when the checkpoint, which must be that of `step`, was saved.

    A critic's parameters stand behind all others: without one now, its state of then is left behind; without one then,
    its state is fresh. A version that came from elsewhere has no folder of a trainer at all: then all of it is fresh.
    """
    if (checkpoint / WEIGHTS).is_dir() and not (checkpoint / _TRAINER).exists():
        return
    try:
        state = json.loads((checkpoint / _TRAINER / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainError(
            f"the checkpoint {checkpoint} cannot be read ({error}); roll back to an earlier one"
        ) from error
    if state != {"format": _FORMAT, "step": step}:
        raise TrainError(f"{checkpoint} is {state}, but step {step} of format {_FORMAT} was expected")
    by_parameter: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _load(checkpoint / _TRAINER / _OPTIMISER).items():
        index, _, kind = name.partition(".")
        by_parameter.setdefault(int(index), {})[kind] = tensor
    full = optimiser.state_dict()
    known = {index for group in full["param_groups"] for index in group["params"]}
    full["state"] = {index: kinds for index, kinds in by_parameter.items() if index in known}
    optimiser.load_state_dict(full)


def load_average(checkpoint: Path, device: torch.device) -> Tensor | None:
    """The slow average; None if none was kept."""
    path = checkpoint / _TRAINER / _AVERAGE
    return _load(path)["flat"].to(device) if path.exists() else None


def load_critic(checkpoint: Path) -> dict[str, Tensor] | None:
    """The critic; None if there was none."""
    path = checkpoint / _TRAINER / _CRITIC
    return _load(path) if path.exists() else None


def _load(path: Path) -> dict[str, Tensor]:
    """Copies: a file's tensors lie at odd addresses, and there a product may round otherwise than where torch puts its
    own, so that a line that was resumed would not be the same to the last bit."""
    try:
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{path} cannot be read ({error}); roll back to an earlier version") from error


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {
        f"{index}.{kind}": value.detach().cpu().contiguous()
        for index, kinds in state.items()
        for kind, value in kinds.items()
    }

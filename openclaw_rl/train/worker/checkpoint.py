"""A line's state on disk: whole or not there at all.

    CHECKPOINT/
      weights/                 what an engine loads: a PEFT adapter, or a whole model
      trainer/optimiser.safetensors
      trainer/average.safetensors   the slow average, where a teacher or the settings ask for one
      trainer/critic.safetensors    the critic, where there is one
      trainer/state.json       format, step

Of several processes each writes its shards (shards.py). It is written beside its place, forced to the disk and renamed.
No pickle. Weights that came from elsewhere have no folder `trainer`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from openclaw_rl.errors import TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.model.folder import sync, sync_folder, unfinished
from openclaw_rl.train.worker.crew import ALONE, Crew
from openclaw_rl.train.worker.shards import Saved, has_shards, rows_of, save_shard

WEIGHTS = "weights"
_TRAINER, _OPTIMISER, _AVERAGE, _CRITIC, _STATE = "trainer", "optimiser", "average", "critic", "state.json"
_FORMAT = 1

SaveWeights = Callable[[Path], None]


def save_checkpoint(
    target: Path,
    *,
    save_weights: SaveWeights,
    optimiser: torch.optim.Optimizer,
    average: Tensor | None,
    step: int,
    critic: Mapping[str, Tensor] | None = None,
    crew: Crew = ALONE,
) -> None:
    """Returns when all of it is on the disk; `TrainError`, and nothing is left of it, if it cannot be written.

    What an earlier, interrupted attempt left is overwritten.
    """
    work = unfinished(target)
    trainer = work / _TRAINER

    def begin() -> None:
        shutil.rmtree(work, ignore_errors=True)
        for folder in (work, trainer):  # one by one: the mode is not that of parents
            folder.mkdir(mode=0o700, parents=True)

    def write() -> None:
        save_weights(work / WEIGHTS)
        crash_point("trainer.in_checkpoint")
        state = optimiser.state_dict()["state"]
        save_shard(
            trainer,
            _OPTIMISER,
            {f"{index}.{kind}": rows_of(value) for index, kinds in state.items() for kind, value in kinds.items()},
            crew,
        )
        if average is not None:
            save_shard(trainer, _AVERAGE, {"flat": rows_of(average)}, crew)

    def finish() -> None:
        if critic is not None:
            save_shard(trainer, _CRITIC, critic, ALONE)
        (trainer / _STATE).write_text(json.dumps({"format": _FORMAT, "step": step}) + "\n", encoding="utf-8")
        for folder in (work / WEIGHTS, trainer):
            sync_folder(folder)
        sync(work)
        crash_point("trainer.before_rename")
        work.rename(target)
        sync(target.parent)

    _together(begin if crew.number == 0 else None, target, crew)
    _together(write, target, crew)
    _together(finish if crew.number == 0 else None, target, crew)


def _together(part: Callable[[], None] | None, target: Path, crew: Crew) -> None:
    """One part of a checkpoint, by all members; what one of them could not write fails in all."""
    failed: str | None = None
    try:
        if part is not None:
            part()
    except (OSError, SafetensorError) as error:  # safetensors has its own for a disk that is full
        failed = str(error)
    if (why := next((one for one in crew.gathered(failed) if one is not None), None)) is not None:
        if crew.number == 0:
            shutil.rmtree(unfinished(target), ignore_errors=True)
        raise TrainError(
            f"no checkpoint can be written to {target.parent} ({why}); free some space there, or set "
            "training.save_path to a folder that has room"
        )


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
    full = optimiser.state_dict()
    numbered = zip(
        (index for group in full["param_groups"] for index in group["params"]),
        (parameter for group in optimiser.param_groups for parameter in group["params"]),
        strict=True,
    )
    known: dict[int, Tensor] = dict(numbered)
    by_parameter: dict[int, dict[str, Tensor]] = {}
    with Saved(checkpoint / _TRAINER, _OPTIMISER) as saved:
        for name in saved.names():
            index, _, kind = name.partition(".")
            if (parameter := known.get(int(index))) is not None:
                like = None if kind == "step" else parameter
                by_parameter.setdefault(int(index), {})[kind] = saved.take(name, like)
    full["state"] = by_parameter
    optimiser.load_state_dict(full)


def load_average(checkpoint: Path, like: Callable[[], Tensor], device: torch.device) -> Tensor | None:
    """The slow average, cut as what it is of; None if none was kept."""
    if not has_shards(checkpoint / _TRAINER, _AVERAGE):
        return None
    with Saved(checkpoint / _TRAINER, _AVERAGE) as saved:
        return saved.take("flat", like()).to(device)


def load_critic(checkpoint: Path) -> dict[str, Tensor] | None:
    """The critic; None if there was none."""
    if not has_shards(checkpoint / _TRAINER, _CRITIC):
        return None
    with Saved(checkpoint / _TRAINER, _CRITIC) as saved:
        return {name: saved.take(name) for name in saved.names()}

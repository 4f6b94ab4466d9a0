"""Samples, exercises and orders to the trainer, for the tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from openclaw_rl.config.learning import TrainingConfig
from openclaw_rl.types import Candidate, Exercise, Sample, StepOrder, VersionSpan, WeightsRef, sample_id


def settings(**changes: Any) -> dict[str, Any]:
    """The section `training` with its defaults, as a worker receives it."""
    values: dict[str, Any] = json.loads(TrainingConfig().model_dump_json())
    return values | {"learning_rate": 0.01, "num_epochs": 1, "lora_rank": 4} | changes


def sample(index: int, *, num_hints: int = 2, advantage: float = -1.0, **changes: Any) -> Sample:
    generator = torch.Generator().manual_seed(index)

    def ids(size: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, 512, (size,), generator=generator).tolist())

    size = 5 + index % 4
    values: dict[str, Any] = {
        "id": sample_id("s", index, "turn"),
        "line": "local",
        "kind": "turn",
        "session": "s",
        "index": index,
        "prompt_index": index,
        "created_at": 0.0,
        "prompt_ids": ids(9 + index % 3),
        "response_ids": ids(size),
        "loss_mask": (True,) * size,
        "advantages": (advantage,) * size,
        "logprobs": (-6.0,) * size,
        "temperature": 0.8,
        "on_policy": True,
        "reward": advantage,
        "w_rl": 1.0,
        "w_opd": 1.0 if num_hints else 0.0,
        "candidates": tuple(Candidate(hint="h", num_shared=4, suffix_ids=ids(3 + i)) for i in range(num_hints)),
        "version_spans": (VersionSpan("v0", 0, size),),
    }
    return Sample(**{**values, **changes})


def exercise(*, w_opd: float = 1.0) -> Exercise:
    wished = Candidate(hint="h", num_shared=2, suffix_ids=(7, 8, 9))
    return Exercise(prompt_ids=(1, 30, 31, 32), candidate=wished, temperature=0.8, w_opd=w_opd)


def weights_of(checkpoint: Path | str) -> WeightsRef:
    """What engines load of a checkpoint, as a row names it."""
    return WeightsRef.of_folder(Path(checkpoint) / "weights", "")


def order(
    folder: Path, number: int, *samples: Sample, parent: str | None = None, **changes: Any
) -> tuple[StepOrder, Path]:
    """An order, and the checkpoint that it makes."""
    made = StepOrder(
        line="local",
        number=number,
        parent=None if parent is None else weights_of(parent),
        parent_number=0 if parent is None else int(parent.rpartition("v")[2]),
        seed=1,
        settings=settings(**changes),
        samples=samples or tuple(sample(10 * number + i) for i in range(3)),
    )
    return made, folder / f"v{number}"

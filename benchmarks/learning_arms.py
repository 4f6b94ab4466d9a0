"""The arms of `learning.py`: what of the system each of them changes, and the grid that two of them were tuned on."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.learning_results import Cell, Person
from benchmarks.tuning_user import Compact

GRID_RATES, GRID_BATCHES = (3e-4, 1e-3, 3e-3), (4, 16)
TUNE_PEOPLE: tuple[Person, ...] = tuple((Compact.name, seed) for seed in (101, 102, 103))
TUNE_CAP = 12
TUNED = {"default": (1e-3, 4), "reference": (1e-3, 4)}
"""Learning rate and batch size, from `GRID`. Those of the default are the product's own: a test compares them."""
GRID: tuple[Cell, ...] = ()
"""What `--tune` printed."""

LATER = "training.max_wait_s=3600"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """`settings` are those of the command line. `at_once`: a partial batch is learned at the end of a session."""

    name: str
    label: str
    settings: tuple[str, ...] = ()
    batch_size: int = 0
    at_once: bool = False
    has_memory: bool = False

    @property
    def learns(self) -> bool:
        return self.batch_size > 0

    @property
    def command(self) -> str:
        return "up" if self.learns else "serve"


def trained(name: str, label: str, preset: str, rate: float, batch_size: int, *settings: str) -> Arm:
    """An arm that learns, at these values."""
    chosen = (f"training.preset={preset}", f"training.learning_rate={rate}", f"training.batch_size={batch_size}")
    is_ours = preset == "default"
    return Arm(
        name=name,
        label=label,
        settings=(*chosen, *((LATER,) if is_ours else ()), *settings),
        batch_size=batch_size,
        at_once=is_ours,
    )


ARMS = {
    arm.name: arm
    for arm in (
        trained("default", "default", "default", *TUNED["default"]),
        trained("reference", "reference, tuned", "reference", *TUNED["reference"]),
        trained("published", "reference, as published", "reference", 1e-5, 16),
        trained("grpo", "default, scores only", "default", *TUNED["default"], "training.method=binary"),
        trained("opd", "default, hints only", "default", *TUNED["default"], "training.method=opd"),
        Arm(name="memory", label="memory in the prompt", has_memory=True),
        Arm(name="none", label="no training"),
    )
}
LABELS = {name: arm.label for name, arm in ARMS.items()}

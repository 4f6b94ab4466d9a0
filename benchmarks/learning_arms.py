"""The arms of `learning.py`: what of the system each of them changes, and the grid that two of them were tuned on."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.learning_results import Cell, Person, winners
from benchmarks.tuning_user import Compact

GRID_RATES, GRID_BATCHES = (3e-4, 5e-4, 1e-3, 2e-3), (4, 16)
TUNE_PEOPLE: tuple[Person, ...] = tuple((Compact.name, seed) for seed in range(101, 119))
TUNE_CAP = 16


def _cell(
    preset: str,
    learning_rate: float,
    batch_size: int,
    sessions: float,
    num_capped: int,
    first_score: float,
    num_people: int = 6,
) -> Cell:
    return Cell(
        preset=preset,
        learning_rate=learning_rate,
        batch_size=batch_size,
        sessions=sessions,
        num_capped=num_capped,
        first_score=first_score,
        num_people=num_people,
    )


GRID: tuple[Cell, ...] = (
    _cell("default", 0.0005, 4, 8.83, 1, 0.54),
    _cell("default", 0.0005, 16, 8.33, 0, 0.534),
    _cell("default", 0.001, 4, 6.89, 1, 0.604, 18),
    _cell("default", 0.001, 16, 7.50, 1, 0.605),
    _cell("default", 0.002, 4, 6.94, 0, 0.623, 18),
    _cell("default", 0.002, 16, 8.33, 1, 0.542),
    _cell("reference", 0.0005, 4, 14.17, 4, 0.439),
    _cell("reference", 0.0005, 16, 16.00, 6, 0.259),
    _cell("reference", 0.001, 4, 10.06, 7, 0.525, 18),
    _cell("reference", 0.001, 16, 16.00, 6, 0.264),
    _cell("reference", 0.002, 4, 9.83, 4, 0.518, 18),
    _cell("reference", 0.002, 16, 16.00, 6, 0.289),
)
"""What `--tune` printed, on an H200 with the engine in float32: all cells with six people, and twelve more for the four
that were nearest to winning."""
TUNED = {
    "default": (3e-4, 4),  # what the product ships now: the grid's own winner is of a recipe with one epoch
    "reference": (winners(GRID)["reference"].learning_rate, winners(GRID)["reference"].batch_size),
}

LATER = "training.max_wait_s=3600"
SOONER = ("training.batching=tree", "training.use_gradient_checkpointing=false")
"""The published recipe's step on our core: the same gradient, with less to compute."""


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
        settings=(*chosen, *((LATER,) if is_ours else SOONER), *settings),
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

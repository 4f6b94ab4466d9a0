"""The arms of `learning.py`: what of the system each of them changes, and the grid that two of them were tuned on."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.learning_results import Cell, Person, winners
from benchmarks.tuning_user import Compact

GRID_RATES, GRID_BATCHES = (3e-4, 1e-3, 2e-3), (4, 8)
TUNE_PEOPLE: tuple[Person, ...] = tuple((Compact.name, seed) for seed in range(101, 105))
TUNE_CAP = 12


def _cell(
    preset: str,
    learning_rate: float,
    batch_size: int,
    sessions: float,
    num_capped: int,
    first_score: float,
) -> Cell:
    return Cell(
        preset=preset,
        learning_rate=learning_rate,
        batch_size=batch_size,
        sessions=sessions,
        num_capped=num_capped,
        first_score=first_score,
        num_people=len(TUNE_PEOPLE),
    )


GRID: tuple[Cell, ...] = (
    _cell("default", 0.0003, 4, 4.75, 1, 0.658),
    _cell("default", 0.0003, 8, 3.25, 0, 0.670),
    _cell("default", 0.001, 4, 5.50, 2, 0.583),
    _cell("default", 0.001, 8, 4.25, 4, 0.574),
    _cell("default", 0.002, 4, 4.25, 0, 0.657),
    _cell("default", 0.002, 8, 4.00, 0, 0.685),
    _cell("reference", 0.0003, 4, 12.00, 4, 0.441),
    _cell("reference", 0.0003, 8, 12.00, 4, 0.364),
    _cell("reference", 0.001, 4, 8.25, 2, 0.470),
    _cell("reference", 0.001, 8, 9.75, 2, 0.460),
    _cell("reference", 0.002, 4, 11.00, 3, 0.511),
    _cell("reference", 0.002, 8, 9.25, 2, 0.560),
)
"""What `--tune` measures, all cells beside each other on an H200 with the engine in float32. Three cells of the default
were cut off after 5, 7 and 8 sessions: who was not stable by then counts as the first session from which they could
still have become it."""
TUNED = {preset: (cell.learning_rate, cell.batch_size) for preset, cell in winners(GRID).items()}

LATER = ("training.max_wait_s=3600", "training.pause_s=3600")
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
        settings=(*chosen, *(LATER if is_ours else SOONER), *settings),
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

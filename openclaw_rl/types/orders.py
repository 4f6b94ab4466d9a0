"""What a trainer is ordered to do, and what it reports.

An order is complete: the same step comes out of the same parent, samples and seed every time. So an order that was lost
with its trainer is simply given again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from openclaw_rl.types.learning import Exercise, Sample
from openclaw_rl.types.messages import Json
from openclaw_rl.types.weights import WeightsRef

ReportState = Literal["done", "discarded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """One step of one line.

    `parent` is what the step starts from, made by step `parent_number`; None and 0 are the base model. `settings` is
    the section `training` of the settings, as JSON. Where the new weights go is the trainer's own business.
    """

    line: str
    number: int
    parent: WeightsRef | None
    parent_number: int
    seed: int
    settings: Mapping[str, Json]
    samples: tuple[Sample, ...]
    anchors: tuple[tuple[int, ...], ...] = ()
    """Prompts to which the base model's own answers are kept; `stop_token_ids` end these."""
    stop_token_ids: tuple[int, ...] = ()
    exercises: tuple[Exercise, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What came of a step: new weights, or none (`discarded`) and the reason."""

    state: ReportState
    metrics: Mapping[str, float]
    reason: str = ""
    weights: WeightsRef | None = None
    """What engines load."""

    @property
    def sha256(self) -> str:
        """Of the weights; empty where there are none."""
        return "" if self.weights is None else self.weights.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOrder:
    """What are the log-probs of these tokens under two versions?

    Each sequence is read from its start on, every token given all before it. `parent` None is the base model.
    """

    sequences: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    parent: WeightsRef | None
    candidate: WeightsRef
    settings: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReport:
    """Log-probs under both versions. `sha256` is what the candidate's weights hash to now."""

    parent: tuple[tuple[float, ...], ...]
    candidate: tuple[tuple[float, ...], ...]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCapabilities:
    """What a trainer can do. Callers ask this, never which trainer it is."""

    lora: bool
    """It trains adapters."""
    full_weights: bool
    """It trains all weights of the model."""
    scores: bool
    """`score` gives the log-probs of given tokens; without it no version can be proved."""
    custom_loss: bool
    """It runs a loss of somebody's own (`training.custom_loss`)."""

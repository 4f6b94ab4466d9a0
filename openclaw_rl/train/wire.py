"""What the control process orders from a trainer, and what it reports: a step, or a reading, as JSON.

Standard library only.

An order is complete: from the parent's checkpoint, the samples and the seed it names the same step comes out every
time, so an order that was lost with its trainer is simply given again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from openclaw_rl.types import Candidate, Exercise, Json, Sample, VersionSpan

ReportState = Literal["done", "discarded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """One step of one line.

    `parent` is the checkpoint to start from, made by step `parent_number`; None and 0 are the base model. `target` is
    the folder that the new checkpoint becomes. `settings` is the section `training` of the settings, as JSON.
    """

    line: str
    number: int
    parent: str | None
    parent_number: int
    target: str
    seed: int
    settings: Mapping[str, Json]
    samples: tuple[Sample, ...]
    anchors: tuple[tuple[int, ...], ...] = ()
    """Prompts to which the base model's own answers are kept; `stop_token_ids` end these."""
    stop_token_ids: tuple[int, ...] = ()
    exercises: tuple[Exercise, ...] = ()

    def to_json(self) -> dict[str, Json]:
        exercises = [asdict(exercise) for exercise in self.exercises]
        return {**_plain(self), "samples": [asdict(sample) for sample in self.samples], "exercises": exercises}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            **{
                **raw,
                "samples": tuple(_sample(one) for one in raw["samples"]),
                "anchors": tuple(tuple(prompt) for prompt in raw["anchors"]),
                "stop_token_ids": tuple(raw["stop_token_ids"]),
                "exercises": tuple(_exercise(one) for one in raw["exercises"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What came of an order: a checkpoint at its target, or none (`discarded`) and the reason."""

    state: ReportState
    metrics: Mapping[str, float]
    reason: str = ""
    sha256: str = ""
    """Of the published part of the checkpoint, as the engine will check it."""

    def to_json(self) -> dict[str, Json]:
        return _plain(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOrder:
    """What two versions make of tokens: those of each sequence from its start on, each given all before it.

    `parent` and `candidate` are folders with weights, as engines load them; None is the base model.
    """

    sequences: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    parent: str | None
    candidate: str
    settings: Mapping[str, Json]

    def to_json(self) -> dict[str, Json]:
        return _plain(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**{**raw, "sequences": tuple(map(tuple, raw["sequences"])), "starts": tuple(raw["starts"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReport:
    """Log-probs under both; `sha256` is that of the candidate's folder."""

    parent: tuple[tuple[float, ...], ...]
    candidate: tuple[tuple[float, ...], ...]
    sha256: str

    def to_json(self) -> dict[str, Json]:
        return _plain(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        both = {name: tuple(map(tuple, raw[name])) for name in ("parent", "candidate")}
        return cls(**{**raw, **both})


def _plain(record: StepOrder | StepReport | ScoreOrder | ScoreReport) -> dict[str, Json]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _sample(raw: Mapping[str, Any]) -> Sample:
    return Sample(
        **{
            **{name: _tuple(value) for name, value in raw.items()},
            "candidates": tuple(map(_candidate, raw["candidates"])),
            "version_spans": tuple(VersionSpan(**span) for span in raw["version_spans"]),
        }
    )


def _exercise(raw: Mapping[str, Any]) -> Exercise:
    return Exercise(
        **{**raw, "prompt_ids": tuple(raw["prompt_ids"]), "candidate": _candidate(raw["candidate"])},
    )


def _candidate(raw: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**raw, "suffix_ids": tuple(raw["suffix_ids"])})


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

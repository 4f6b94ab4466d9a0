"""What learning leaves behind: steps, and the versions of the weights that they made.

A *line* is whose adapter learns: one for each user. Steps and versions of a line are counted from 1; version n is what
step n made. Version 0 of every line is the untouched base model.

    Step(planned, samples fixed) -> trainer -> Step(done) + Version(candidate) -> gate -> live, or rejected
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from openclaw_rl.types.messages import Json
from openclaw_rl.types.turns import LOCAL_USER

StepState = Literal["planned", "done", "discarded"]
VersionState = Literal["candidate", "live", "retired", "rejected", "rolled_back"]

_MAX_LABEL = 63


def version_label(line: str, number: int) -> str:
    """The name by which engines and answers know a version: `v3` for the local user's, `v3.ann` for another's."""
    if line == LOCAL_USER or number == 0:
        return f"v{number}"
    label = f"v{number}.{line}"
    return label if len(label) <= _MAX_LABEL else f"v{number}.{hashlib.sha256(line.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimiser step of a line. `sample_ids` are fixed when it is planned: given again, it is the same step."""

    line: str
    number: int
    state: StepState
    planned_at: float
    seed: int
    parent: int
    """The version that it starts from."""
    sample_ids: tuple[str, ...]
    finished_at: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    """Why it was discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Weights that a step made. `path` is the folder that engines load and `sha256` what its bytes hash to."""

    line: str
    number: int
    parent: int
    state: VersionState
    created_at: float
    path: str
    sha256: str
    gate: Json = None
    """What the gate measured; None before it did."""
    reason: str = ""
    """Why it was rejected or rolled back."""

    @property
    def label(self) -> str:
        return version_label(self.line, self.number)

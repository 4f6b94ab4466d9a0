"""What learning leaves behind: steps, and the versions of the weights that they made.

A *line* is whose adapter learns: one for each user and each environment (lines.py). Steps and versions of a line are
counted from 1; version n is what step n made. Version 0 of every line is the untouched base model.

    Step(planned, samples fixed) -> trainer -> Step(done) + Version(candidate) -> gate -> live, or rejected
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from openclaw_rl.types.lines import split_line
from openclaw_rl.types.messages import Json
from openclaw_rl.types.turns import LOCAL_USER
from openclaw_rl.types.weights import WeightsRef

StepState = Literal["planned", "done", "discarded"]
VersionState = Literal["candidate", "no_effect", "live", "retired", "rejected", "rolled_back"]
"""`no_effect`: a candidate whose change is below the noise. It does not answer; the next step builds on it, so that
small steps add up."""

_MAX_LABEL = 63


def version_label(line: str, number: int) -> str:
    """The name by which engines and answers know a version: `v3` for the local user's, `v3.ann` for another user's,
    `v3-env.terminal` for an environment's. Labels have no colon; the dash tells an environment from a user."""
    if line == LOCAL_USER or number == 0:
        return f"v{number}"
    prefix, name = split_line(line)
    start = f"v{number}-{prefix}." if prefix else f"v{number}."
    fits = len(start) + len(name) <= _MAX_LABEL
    return start + (name if fits else hashlib.sha256(line.encode()).hexdigest()[:16])


def version_number(label: str) -> int:
    """The inverse: 3 for `v3`, `v3.ann` and `v3-env.terminal`; ValueError for what is no label."""
    return int(re.split(r"[.-]", label.removeprefix("v"), maxsplit=1)[0])


IMPORTED = "imported"
"""The reason of a step that nobody took: its version came from elsewhere (`openclaw-rl import`)."""

TRACES_LEFT = "forget.traces_left"
"""The store's flag that says that something was deleted, and is not yet erased from the unused parts of its pages and
from its log. It is gone once the bytes are."""

JUDGING_PAUSED = "judge.paused"
"""The store's flag that says why judging, or part of it, is paused; it outlives the process."""

TRAINING_PAUSED = "train.paused"
"""The store's flag that says why nothing is trained at present."""

PRESENT_MODEL = "model.present"
"""The store's flag that names the model and tokenizer it is run with; other models' versions and samples rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimiser step of a line. What goes into it is fixed when it is planned: given again, it is the same step.

    `sample_ids` are learned from for the first time, `replayed_ids` once more; `num_anchors` prompts hold it to the
    base.
    """

    line: str
    number: int
    state: StepState
    planned_at: float
    seed: int
    parent: int
    """The version that it starts from."""
    sample_ids: tuple[str, ...]
    replayed_ids: tuple[str, ...] = ()
    num_anchors: int = 0
    finished_at: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    """Why it was discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Weights that a step made. `weights` says where they are; None: they were removed."""

    line: str
    number: int
    parent: int
    state: VersionState
    created_at: float
    weights: WeightsRef | None
    gate: Json = None
    """What the gate measured; None before it did."""
    reason: str = ""
    """Why it was rejected or rolled back, or why it does not answer yet."""
    model: str | None = None
    """What it was trained on, as `Turn.model` names it; None is not known, and taken for the present one."""

    @property
    def folder(self) -> Path | None:
        """The local folder that engines load; None where the weights are gone, or elsewhere."""
        return None if self.weights is None else self.weights.folder

    @property
    def place(self) -> str:
        """That folder, or what a service calls the weights; empty where they are gone."""
        return str(self.folder or (self.weights.uri if self.weights else ""))

    @property
    def sha256(self) -> str:
        """What its weights hash to; empty where they are gone, or their owner cannot say."""
        return "" if self.weights is None else self.weights.sha256

    @property
    def label(self) -> str:
        return version_label(self.line, self.number)

    @property
    def base_model(self) -> str | None:
        """The name, or the folder, of what it was trained on, without its tokenizer's digest."""
        return None if self.model is None else self.model.rpartition("#")[0] or self.model

    @property
    def was_live(self) -> bool:
        """Whether it answers, or ever did."""
        return self.state == "live" or (isinstance(self.gate, dict) and "live_at" in self.gate)

    @property
    def may_answer(self) -> bool:
        """Whether its files are there, and a gate let it answer before and has found nothing against it since."""
        return self.weights is not None and self.was_live and self.state != "rejected"

    @property
    def on_probation(self) -> bool:
        """Whether it answers, or did, by the quick check alone."""
        return self.was_live and isinstance(self.gate, dict) and self.gate.get("check") == "quick"


DOUBT_S = 900.0
"""How long a line that has only doubted samples gives way to others: each of them is a step, and takes minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Samples of one line that no step has yet."""

    line: str
    num_samples: int
    since: float
    """When the first of them was made."""
    newest: float = 0.0
    """When the last of them was made."""
    num_doubted: int = 0
    """How many of them were in a step that was discarded."""
    last_step_at: float = 0.0
    """When the line's last step was planned; 0 before its first."""
    silent_since: float | None = None
    """When its person was last heard. None: something they said is still to be judged or credited, or nobody speaks
    here."""

    @property
    def turn(self) -> tuple[float, float]:
        """The lowest goes next: the line whose last step is longest ago, then the one with the oldest sample.

        A line with doubted samples only counts as if its last step were `DOUBT_S` later. Every step moves its line
        back, so none waits for ever: neither what is in doubt, nor others beside a line that always has more.
        """
        gives_way_s = DOUBT_S if self.num_doubted == self.num_samples else 0.0
        return self.last_step_at + gives_way_s, self.since

    def turn_by_weight(self, now: float, weight: float) -> tuple[float, float]:
        """The lowest goes next: a line of twice the weight grows old twice as fast; of equal ones `turn` decides.

        The bound: among N lines whose turns take T seconds at most, a line of weight w waits no longer than
        `(N - 1) * T * (1 + w_max / w)`. For what is served before it must have grown as old as it, so once it has
        waited `(N - 1) * T * w_max / w` every other goes before it at most once more.
        """
        last_at, since = self.turn
        return (last_at - now) * weight, since


def candidate_chain(versions: Sequence[Version]) -> list[Version]:
    """The candidates of one line that stand on the version that answers, each on the one before it.

    Where no engine runs nothing is released, and a step starts from what the step before it made. A candidate that
    stands on something else, because somebody went back to another version meanwhile, is not among them.
    """
    return [version for version in _unreleased(versions) if version.state == "candidate"]


def head_number(versions: Sequence[Version]) -> int:
    """The version of one line that its next step starts from: the last one built on the live one, or that itself."""
    chain = _unreleased(versions)
    return chain[-1].number if chain else _live_number(versions)


def _unreleased(versions: Sequence[Version]) -> list[Version]:
    """What was built on the version that answers, up to the newest that can be built on."""
    known = {version.number: version for version in versions}
    live = _live_number(versions)
    ends = (one.number for one in versions if one.state == "candidate" or (one.state == "no_effect" and one.weights))
    for newest in sorted(ends, reverse=True):
        chain, at = [], newest
        while at != live and at in known and known[at].state in ("candidate", "no_effect", "retired"):
            chain.append(known[at])
            at = known[at].parent
        if at == live:
            return chain[::-1]
    return []


def _live_number(versions: Sequence[Version]) -> int:
    return next((version.number for version in versions if version.state == "live"), 0)

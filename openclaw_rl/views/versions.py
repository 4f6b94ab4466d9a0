"""What was learned: versions, the steps that made them, and which one answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.release.watch import MAX_TURNS, Count, counts, window
from openclaw_rl.types import BASE_VERSION, IMPORTED, LOCAL_USER, Json, Step, Version, version_label


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """A version and the step that made it."""

    version: Version
    step: Step

    @property
    def is_imported(self) -> bool:
        return self.step.reason == IMPORTED

    def to_json(self) -> dict[str, Json]:
        version, step = self.version, self.step
        return {
            "version": version.label,
            "user": version.line,
            "number": version.number,
            "model": version.model,
            "parent": version.parent,
            "state": version.state,
            "on_probation": version.state == "live" and version.on_probation,
            "created_at": version.created_at,
            "path": version.place,
            "sha256": version.sha256,
            "gate": version.gate,
            "reason": version.reason,
            "samples": list(step.sample_ids),
            "replayed": list(step.replayed_ids),
            "imported": self.is_imported,
            "metrics": dict(step.metrics),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step, and the version that it made, if it made one."""

    step: Step
    version: Version | None

    @property
    def state(self) -> str:
        """The version's, else the step's own, in words."""
        return (self.step.state if self.version is None else self.version.state).replace("_", " ")

    def to_json(self) -> dict[str, Json]:
        step, version = self.step, self.version
        return {
            "user": step.line,
            "number": step.number,
            "state": step.state,
            "reason": step.reason,
            "parent": version_label(step.line, step.parent),
            "version": None if version is None else version.label,
            "version_state": None if version is None else version.state,
            "path": None if version is None else version.place,
            "samples": list(step.sample_ids),
            "replayed": list(step.replayed_ids),
            "anchors": step.num_anchors,
            "metrics": dict(step.metrics),
        }


def list_versions(rows: ReadStore, *, user: str | None = None) -> list[VersionView]:
    """Of all lines, or of one user's, and of every model; in their order."""
    versions = rows.versions(user, every_model=True)
    steps = {(step.line, step.number): step for line in {one.line for one in versions} for step in rows.steps(line)}
    return [VersionView(version=one, step=steps[one.line, one.number]) for one in versions]


def list_steps(rows: ReadStore, steps: Sequence[Step]) -> list[StepView]:
    """These, with what they made for the present model."""
    made = {(one.line, one.number): one for one in rows.versions()}
    return [StepView(step=step, version=made.get((step.line, step.number))) for step in steps]


def served_counts(rows: ReadStore, version: Version, limits: ReleaseConfig) -> list[Count]:
    """What the watch counts of the answers that a version has given to people; nothing where it has given none."""
    since, parent = window(version)
    turns = rows.served_turns(version.line, version.label, since=since, limit=MAX_TURNS)
    if not turns:
        return []
    before, base = (
        rows.served_turns(version.line, label, since=0.0, limit=limits.watch_turns) for label in (parent, BASE_VERSION)
    )
    return counts(turns, before, limits, base=base)


def counts_json(found: Sequence[Count], limits: ReleaseConfig) -> list[Json]:
    """Each kind: how many of how many answers, the parent's, and the odds of a bad version beside the alarm's."""
    return [
        {
            "kind": count.kind.name,
            "answers": count.num,
            "of": count.of,
            "parent_answers": count.parent_num,
            "parent_of": count.parent_of,
            "odds": round(count.odds, 3),
            "alarm_odds": limits.alarm_odds,
            "alarm": count.is_alarm,
        }
        for count in found
    ]


def find_version(rows: ReadStore, name: str, *, user: str | None) -> VersionView:
    """What `name` means: a label such as v3 or v3.ann, or a number of the user's line."""
    views = list_versions(rows)
    for view in views:
        if name == view.version.label and user in (None, view.version.line):
            return view
    line = user or LOCAL_USER
    for view in views:
        if view.version.line == line and name.removeprefix("v") == str(view.version.number):
            return view
    have = ", ".join(view.version.label for view in views[-8:]) or "none but the base model, v0"
    raise NotFound(f"there is no version {name!r}; there are {have}")


def live_number(rows: ReadStore, line: str) -> int:
    """The version of a line that answers; 0 is the base model."""
    return next((version.number for version in rows.versions(line) if version.state == "live"), 0)

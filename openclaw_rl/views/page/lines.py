"""How the steps and versions of a line stand on each other: read once for a list, whatever it shows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Step, Version, ancestry, version_label


@dataclass(frozen=True, slots=True, kw_only=True)
class LineHistory:
    """`in_live` are the numbers of the version that answers, and of those that it stands on."""

    line: str
    versions: Mapping[int, Version]
    steps: Mapping[int, Step]
    answering: int
    in_live: frozenset[int]
    tried: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By sample: the steps that learned from it, or were to."""

    def label(self, number: int) -> str:
        return version_label(self.line, number)


def read_history(rows: ReadStore, line: str) -> LineHistory:
    """As it is now, for the model that the store is run with."""
    versions, steps = rows.versions(line), rows.steps(line)
    answering = next((one.number for one in versions if one.state == "live"), 0)
    tried: dict[str, tuple[int, ...]] = {}
    for step in steps:
        for name in step.sample_ids:
            tried[name] = (*tried.get(name, ()), step.number)
    return LineHistory(
        line=line,
        versions={one.number: one for one in versions},
        steps={one.number: one for one in steps},
        answering=answering,
        in_live=frozenset(ancestry(versions, answering)),
        tried=tried,
    )

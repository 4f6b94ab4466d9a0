"""What a check measured of a candidate, and what stands against it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from openclaw_rl.types import Json

Check = Literal["quick", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMeasure:
    """One number of a candidate, beside those of its parent and of the base model where they have one."""

    name: str
    candidate: float
    parent: float | None = None
    base: float | None = None
    limit: str = ""
    objection: str = ""


@dataclass(slots=True, kw_only=True)
class GateReport:
    """What was measured, as far as it came; `reason` is empty where nothing stands against it."""

    check: Check = "full"
    parent: str
    """The version that it was compared with."""
    measures: list[GateMeasure] = field(default_factory=list)
    knowledge: dict[str, Json] | None = None
    """The questions that it, and the base model, got right: what the next version is compared with."""
    unmeasured: str = ""
    """What could not be measured, and why."""
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        return "; ".join(one.objection for one in self.measures if one.objection)

    def to_json(self) -> dict[str, Json]:
        """The candidate's numbers by name, what tells most first; then everything."""
        first = ("kl", "capability", "tokens", "on_topic")
        ordered = sorted(self.measures, key=lambda one: first.index(one.name) if one.name in first else len(first))
        return {**{one.name: one.candidate for one in ordered}, **asdict(self), "reason": self.reason}

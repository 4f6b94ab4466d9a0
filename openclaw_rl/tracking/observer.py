"""What there is to see of learning, as one who looks on is told it."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.types import Credit, JudgedTurn, Skip, Step, Version


class Observer:
    """Overrides what it wants to see. It may block and it may raise: `Observers` keeps the others from both."""

    name: str

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        """A judgement came to this."""

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        """Samples of a line that waited will not be learned from."""

    def stepped(self, step: Step) -> None:
        """A step ended: done, or discarded."""

    def evaluated(self, step: Step) -> None:
        """The version of a step was measured; `metrics` has these measures alone."""

    def changed(self, version: Version) -> None:
        """A version has another state than before, such as live or rejected."""

    def close(self) -> None:
        """Nothing more is to be seen."""

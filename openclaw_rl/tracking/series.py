"""Steps -> points over the step's number, one series for each line, for those that draw curves of them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from openclaw_rl.tracking.observer import Observer
from openclaw_rl.types import Credit, JudgedTurn, Skip, Step


class SeriesObserver(Observer):
    """Adds to a step's metrics what became of the line's turns since the start.

    `credit/sample` counts those that became samples, `credit/REASON` those that did not; `skipped/REASON` samples that
    were left out while they waited.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        self._counts[judged.session.user][f"credit/{credit.skip or 'sample'}"] += 1

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        self._counts[line][f"skipped/{why}"] += len(sample_ids)

    def stepped(self, step: Step) -> None:
        if step.state == "done":
            self.put(step, {**step.metrics, **self._counts[step.line]})

    def evaluated(self, step: Step) -> None:
        self.put(step, step.metrics)

    @abstractmethod
    def put(self, step: Step, metrics: Mapping[str, float]) -> None:
        """A point of the series of `step.line`."""

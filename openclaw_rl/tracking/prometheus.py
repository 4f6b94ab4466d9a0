"""Steps and versions -> gauges and counters in the gateway's registry, which `/metrics` shows.

A metric of a step has its own name with what Prometheus does not allow replaced: `loss/opd` is `openclaw_rl_loss_opd`.
Gauges hold what the step that ended last measured, of whatever user: no label names anybody. Judgements, and turns that
are not learned from by their reason, are the gateway's own counters.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.tracking.observers import Observer
from openclaw_rl.types import Skip, Step, Version, VersionState


class PrometheusObserver(Observer):
    """`known` are the versions that there are at the start."""

    name = "Prometheus"

    def __init__(self, registry: CollectorRegistry, known: Iterable[Version] = ()) -> None:
        self._registry = registry
        self._gauges: dict[str, Gauge] = {}
        self._steps = Counter("openclaw_rl_steps", "Steps that ended.", ["state"], registry=registry)
        self._samples = Counter("openclaw_rl_trained_samples", "Samples learned from.", registry=registry)
        self._skipped = Counter(
            "openclaw_rl_skipped_samples", "Samples that waited and were left out.", ["reason"], registry=registry
        )
        self._versions = Gauge("openclaw_rl_versions", "Versions by their state.", ["state"], registry=registry)
        self._states = {(version.line, version.number): version.state for version in known}
        self._count()
        for name in MEANINGS:
            if not name.startswith("eval/"):  # a capability of 0 before the first evaluation would be a false alarm
                self._gauge(name)

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        self._skipped.labels(why).inc(len(sample_ids))

    def stepped(self, step: Step) -> None:
        self._steps.labels(step.state).inc()
        if step.state == "done":
            self._samples.inc(len(step.sample_ids))
        for name, value in step.metrics.items():
            self._gauge(name).set(value)

    def evaluated(self, step: Step) -> None:
        for name, value in step.metrics.items():
            self._gauge(name).set(value)

    def changed(self, version: Version) -> None:
        if version.state == "live":  # the one that was is retired by the same row
            for (line, number), state in self._states.items():
                if line == version.line and state == "live":
                    self._states[line, number] = "retired"
        self._states[version.line, version.number] = version.state
        self._count()

    def _count(self) -> None:
        found = Tally(self._states.values())
        for state in get_args(VersionState):
            self._versions.labels(state).set(found[state])

    def _gauge(self, name: str) -> Gauge:
        """A loss of somebody's own may bring metrics that nobody knew of."""
        legal = "openclaw_rl_" + re.sub(r"\W", "_", name, flags=re.ASCII)
        if legal not in self._gauges:
            meaning = MEANINGS.get(name, "A metric of a loss of your own.")
            self._gauges[legal] = Gauge(legal, meaning, registry=self._registry)
        return self._gauges[legal]

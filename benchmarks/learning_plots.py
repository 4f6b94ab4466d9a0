"""Summaries of arms -> a PNG: held-out preference by session, capability by version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.learning_results import Record, Summary


def preference_by_session(records: Sequence[Record]) -> list[tuple[int, float]]:
    """Means over people, on a straight line between two measurements; who was stable and left keeps the last one."""
    probed = [record for record in records if record.probes]
    sessions = sorted({probe.session for record in probed for probe in record.probes})

    def at(record: Record, session: int) -> float:
        known = [(probe.session, probe.preference) for probe in record.probes]
        return float(np.interp(session, [x for x, _ in known], [y for _, y in known]))

    return [(session, fmean(at(record, session) for record in probed)) for session in sessions]


def capability_by_version(records: Sequence[Record]) -> list[tuple[int, float]]:
    """Means over those people whose line has that version."""
    found: dict[int, list[float]] = {}
    for record in records:
        for number, share in record.known:
            found.setdefault(number, []).append(share)
    return sorted((number, fmean(shares)) for number, shares in found.items())


def plot(summaries: Mapping[str, Summary], labels: Mapping[str, str], path: Path) -> None:
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, summary in summaries.items():
        label = labels.get(name, name)
        curve = preference_by_session(summary.records)
        left.plot([x for x, _ in curve], [y for _, y in curve], marker="o", markersize=3, label=label)
        known = capability_by_version(summary.records)
        if len(known) > 1:
            right.plot([x for x, _ in known], [y for _, y in known], marker="o", markersize=3, label=label)
    left.set_title("preference on held-out questions", fontsize=10, loc="left")
    left.set_xlabel("sessions")
    left.set_ylim(0, 1)
    left.legend(fontsize=8)
    right.set_title("capability (0.25 is guessing)", fontsize=10, loc="left")
    right.set_xlabel("version")
    right.set_ylim(0, 1)
    for axes in (left, right):
        axes.locator_params(axis="x", integer=True)
    figure.savefig(path, dpi=130)

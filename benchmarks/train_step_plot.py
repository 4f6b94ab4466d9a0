"""Figures of `train_step.py --part turns` -> a PNG: what a session costs by its turns.

python benchmarks/train_step.py --device cuda --part turns --json | tail -1 > figures.json
python benchmarks/train_step_plot.py figures.json turns.png
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path


def by_turns(found: Mapping[str, float], suffix: str) -> list[tuple[int, float]]:
    """(turns, seconds) of one side, the shortest session first."""
    matches = ((re.fullmatch(rf"turns_(\d+)_{suffix}", name), value) for name, value in found.items())
    return sorted((int(match[1]), value) for match, value in matches if match)


def plot(found: Mapping[str, float], path: Path) -> None:
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    ours, theirs = by_turns(found, "s"), by_turns(found, "reference_fitted_s")
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    for axes, scale in zip(figure.subplots(1, 2), ("linear", "log"), strict=True):
        for points, label in ((theirs, "per turn, fitted"), (ours, "ours, run")):
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=label)
        if "chain_reference_s" in found:
            axes.plot([16], [found["chain_reference_s"]], marker="x", linestyle="none", label="per turn, run")
        axes.set_xscale(scale, **({"base": 2} if scale == "log" else {}))
        axes.set_yscale(scale)
        axes.set_xlabel("turns in the session")
        axes.legend(fontsize=8)
        axes.set_title(f"seconds of a step, {scale} axes", fontsize=10, loc="left")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))

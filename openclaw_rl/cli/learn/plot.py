"""Measures -> a PNG. matplotlib is imported only when a plot is drawn; whether one can be is asked before the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openclaw_rl.cli.demo.events import Point
from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.evaluation.comparing import ComparedMeasure
from openclaw_rl.evaluation.measures import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEFORE, _AFTER, _KNOWN = "#9aa0a6", "#1a73e8", "#188038"


class PlotFailed(OpenClawError):
    """A plot could not be written after all."""


def check_plot(path: Path) -> None:
    """ConfigError if there can be no plot in this file."""
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs the package matplotlib; install it with: pip install openclaw-rl[evaluation]")
    try:
        if path.is_dir():
            raise ConfigError(f"--plot {path} is a folder; name a file in it, such as {path / 'plot.png'}")
        if path.suffix != ".png":
            raise ConfigError(f"--plot writes a PNG; got {path.name}, call it {path.stem}.png")
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"--plot {path}: there is no folder {path.absolute().parent}; make it first")
        is_new = not os.path.lexists(path)
        path.open("ab").close()  # the only sure way to know; what is in it stays
        if is_new:
            path.unlink()
    except OSError as error:
        raise ConfigError(_cannot(path, error)) from None


def show_with_plot(plot: Path | None, draw: Callable[[Path], None], show: Callable[[Path | None], None]) -> None:
    """Shows with the plot that was drawn, or without: one that fails is told when everything else has been shown."""
    drawn = None
    try:
        if plot is not None:
            draw(plot)
            drawn = plot
    finally:
        show(drawn)


def plot_curve(points: Sequence[Point], path: Path, *, title: str) -> None:
    """Preference and length over lessons, capability below, each with what it began with."""
    figure = _figure(width=7.5, height=6.5)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.set_title(title, fontsize=11, loc="left")
    xs = [point.num_lessons for point in points]
    _band(above, xs, [point.preference for point in points], "preference, held-out questions", _AFTER)
    above.set_ylabel("preference (0 to 1)")
    above.set_ylim(-0.02, 1.02)
    right: Any = above.twinx()
    right.plot(xs, [point.tokens for point in points], color=_BEFORE, marker=".", linestyle="--", label="tokens")
    right.set_ylabel("tokens of an answer", color=_BEFORE)
    right.set_ylim(bottom=0)
    for point in points:
        above.annotate(
            point.label.partition(".")[0],
            (point.num_lessons, point.preference.value),
            textcoords="offset points",
            xytext=(0, 7),
            fontsize=8,
            ha="center",
        )
    known = [(point.num_lessons, point.capability) for point in points if point.capability is not None]
    if known:
        _band(below, [x for x, _ in known], [share for _, share in known], "capability", _KNOWN)
        below.axhline(known[0][1].value, color=_BEFORE, linewidth=0.8)
    below.axhline(0.25, color=_BEFORE, linewidth=0.8, linestyle=":")
    below.set_ylim(0, 1)
    below.set_ylabel("capability (0.25 is guessing)")
    below.set_xlabel("lessons")
    _save(figure, path)


def plot_comparison(measures: Sequence[ComparedMeasure], path: Path, *, before: str, after: str, title: str) -> None:
    """Bars in pairs with their intervals; lengths stand apart, being no shares."""
    shares = [measure for measure in measures if measure.is_share]
    lengths = [measure for measure in measures if not measure.is_share]
    figure = _figure(width=2.0 + 1.1 * len(measures), height=4.2)
    left, right = figure.subplots(1, 2, width_ratios=(max(1, len(shares)), max(1, len(lengths))))
    for axes, group in ((left, shares), (right, lengths)):
        for offset, label, colour in ((-0.2, before, _BEFORE), (0.2, after, _AFTER)):
            intervals = [measure.before if label == before else measure.after for measure in group]
            values = [interval.value for interval in intervals]
            axes.bar(
                [index + offset for index in range(len(group))],
                values,
                width=0.38,
                label=label,
                color=colour,
                yerr=_errors(intervals),
                capsize=3,
            )
        axes.set_xticks(range(len(group)), [measure.name.replace("_", "\n") for measure in group], fontsize=8)
    left.set_ylim(0, 1.05)
    left.set_title(title, fontsize=11, loc="left")
    left.legend(fontsize=8)
    _save(figure, path)


def _figure(*, width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise PlotFailed(_cannot(path, error)) from None


def _cannot(path: Path, error: OSError) -> str:
    return f"the plot {path} cannot be written: {error.strerror}; --plot names another file"


def _band(axes: Axes, xs: Sequence[float], intervals: Sequence[Interval], label: str, colour: str) -> None:
    axes.plot(xs, [interval.value for interval in intervals], color=colour, marker="o", label=label)
    below, above = _errors(intervals)
    values = [interval.value for interval in intervals]
    lows = [value - error for value, error in zip(values, below, strict=True)]
    highs = [value + error for value, error in zip(values, above, strict=True)]
    axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)


def _errors(intervals: Sequence[Interval]) -> tuple[list[float], list[float]]:
    """Down and up; none where an end is unknown."""
    finite = [(i.value - i.low, i.high - i.value) if abs(i.low) + abs(i.high) < 1e9 else (0.0, 0.0) for i in intervals]
    return [max(0.0, low) for low, _ in finite], [max(0.0, high) for _, high in finite]

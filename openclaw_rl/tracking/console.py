"""A step, and what became of its version -> one line that a person reads.

    step 3 of local: loss 0.41 (rl 0.12, opd 0.29), reward −0.50 ± 0.87, 4 samples, 9.8 s → v3 live

A discarded step has no line: the train loop complains of it itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from openclaw_rl.tracking.observers import Observer
from openclaw_rl.types import Step, Version, version_label

_log = logging.getLogger(__name__)


class ConsoleObserver(Observer):
    """Says its line to `say` and to the log, once it is known whether the version went live."""

    name = "the console"

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._unreleased: dict[str, Step] = {}
        """The last step of each line, while nothing is known of its version."""

    def stepped(self, step: Step) -> None:
        self._give_up(step.line)
        if step.state == "done":
            self._unreleased[step.line] = step

    def changed(self, version: Version) -> None:
        step = self._unreleased.get(version.line)
        if step is None or step.number != version.number or version.state == "candidate":
            return
        del self._unreleased[version.line]
        state = version.state.replace("_", " ")
        self._write(step, f"{state}: {version.reason}" if version.reason else state)

    def close(self) -> None:
        for line in list(self._unreleased):
            self._give_up(line)

    def _give_up(self, line: str) -> None:
        step = self._unreleased.pop(line, None)
        if step is not None:
            self._write(step, "not released yet")

    def _write(self, step: Step, became: str) -> None:
        line = f"{step_text(step)} → {version_label(step.line, step.number)} {became}"
        _log.info(line)
        self._say(line)


def step_text(step: Step) -> str:
    """What a step came to, as far as it was measured."""
    metrics = step.metrics
    terms = {"rl": "loss/binary", "opd": "loss/opd", "value": "loss/value"}
    losses = ", ".join(f"{term} {metrics[name]:.2g}" for term, name in terms.items() if name in metrics)
    parts: list[str] = []
    if "loss/total" in metrics:
        parts.append(f"loss {metrics['loss/total']:.2g}" + (f" ({losses})" if losses else ""))
    if "reward/mean" in metrics:
        parts.append(f"reward {metrics['reward/mean']:.2f} ± {metrics.get('reward/std', 0.0):.2f}")
    num_samples = len(step.sample_ids) + len(step.replayed_ids)
    parts.append(f"{num_samples} sample{'' if num_samples == 1 else 's'}")
    if "step/seconds" in metrics:
        parts.append(f"{metrics['step/seconds']:.1f} s")
    return f"step {step.number} of {step.line}: " + ", ".join(parts).replace(" -", " −")

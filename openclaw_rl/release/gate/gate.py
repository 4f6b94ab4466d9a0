"""The gate: what is asked before a version answers (quick.py), and while it answers on probation (full.py).

Knows one engine and no rows but the line's own turns and wishes. What is known of the base model, of the version that
answers and of the one that was confirmed last is kept, and measured ahead where there is time (`prepare`).
"""

from __future__ import annotations

import asyncio
import time

from openclaw_rl.errors import TrainError
from openclaw_rl.protocols import Engine, LearningStore
from openclaw_rl.release.gate.full import FullCheck
from openclaw_rl.release.gate.probes import PROBES_BY_KIND
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.release.gate.quick import QuickCheck
from openclaw_rl.release.gate.report import Check, GateReport
from openclaw_rl.release.gate.trial import Tools, Trial
from openclaw_rl.types import BASE_VERSION, Version, line_kind

_NUM_WISHES = 4
"""Wishes of a line that its answers are compared with, the newest ones."""


class Gate:
    """Compares versions on one engine. `model_id` names the model of all ids; without `proving` nobody is tried
    quickly."""

    def __init__(
        self, engine: Engine, tools: Tools, *, log: LearningStore, model_id: str, proving: Proving | None = None
    ) -> None:
        self._engine = engine
        self._tools = tools
        self._log = log
        self._model_id = model_id
        self._proving = proving
        self._measuring = asyncio.Lock()

    async def prepare(self, parent: Version | None) -> None:
        """Measures what the next quick check compares with: `parent`, which is loaded, and the base model.

        A check that comes meanwhile waits for one part of this at most.
        """
        label = BASE_VERSION if parent is None else parent.label
        probes = PROBES_BY_KIND["user" if parent is None else line_kind(parent.line)]
        versions = dict.fromkeys((BASE_VERSION, label))
        for version in versions if probes.chat else ():
            async with self._measuring:
                await self._tools.prober.begun(version)
                if self._proving is not None and version == label:
                    await self._proving.passages(label)
        for part in self._tools.knowledge.parts if probes.capability else ():
            for version in versions:
                async with self._measuring:
                    await self._tools.knowledge.ask_ahead(version, parent, part)

    async def quick(self, candidate: Version, parent: Version | None, confirmed: Version | None) -> GateReport:
        """Both others are loaded; None is the base model. `TrainError` if the trainer cannot say how far it is."""
        if self._proving is None:
            raise TrainError("there is no trainer that could compare a candidate with its parent")
        began = time.monotonic()
        async with self._measuring:
            trial = await self._trial("quick", candidate, parent)
            await QuickCheck(self._tools, trial, self._proving, confirmed=confirmed).run()
        return _timed(trial.report, began)

    async def full(self, candidate: Version, confirmed: Version | None) -> GateReport:
        """Both are loaded; None is the base model."""
        began = time.monotonic()
        async with self._measuring:
            trial = await self._trial("full", candidate, confirmed)
            await FullCheck(self._tools, trial).run()
        return _timed(trial.report, began)

    async def _trial(self, check: Check, candidate: Version, parent: Version | None) -> Trial:
        limits, line = self._tools.limits, candidate.line
        room = (await self._engine.state()).context_window - limits.answer_tokens
        return Trial(
            candidate=candidate,
            parent=parent,
            report=GateReport(check=check, parent=BASE_VERSION if parent is None else parent.label),
            replayed=await self._log.replayed_turns(
                line, model=self._model_id, limit=limits.replay_turns, max_tokens=min(room, limits.replay_tokens)
            ),
            wishes=await self._log.hints(line, number=candidate.number, limit=_NUM_WISHES),
        )


def _timed(report: GateReport, began: float) -> GateReport:
    report.seconds = round(time.monotonic() - began, 1)
    return report

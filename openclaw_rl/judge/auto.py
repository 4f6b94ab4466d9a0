"""`evaluation.judge: auto` where a model judge is configured: it judges if it passes the check set, else our own does.

The check asks it about reactions whose labels are known (heads/check.jsonl), once, before it judges. One that
gives no answer at all may only be down: our own judge stands in, and it is asked again later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from openclaw_rl.judge.compose import MarksClaims, ask
from openclaw_rl.judge.heads.check import check_scores
from openclaw_rl.judge.heads.examples import CHECK, Example, load
from openclaw_rl.judge.heads.fit import mixed
from openclaw_rl.judge.model.panel import Budgeted
from openclaw_rl.protocols import Judge
from openclaw_rl.types import NOT_ASKED, Evidence, Score, Verdict

log = logging.getLogger(__name__)

NUM_CASES = 40
"""Of the check set: each costs a judge as much as a turn."""
_AT_ONCE = 4
_AGAIN_S = 600.0


class AutoJudge:
    """`protocols.Judge` over a model's and our own; closes both."""

    def __init__(self, model: Judge, own: Judge, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._model, self._own = model, own
        self._clock = clock
        self._chosen: Judge | None = None
        self._again_at = 0.0
        self._choosing = asyncio.Lock()
        self.why = "not checked yet"
        """How the model judge did, for people."""

    @property
    def name(self) -> str:
        return (self._chosen or self._own).name

    @property
    def prompt_version(self) -> str:
        return (self._chosen or self._own).prompt_version

    @property
    def num_spent(self) -> int | None:
        return self._model.num_spent if isinstance(self._model, Budgeted) else None

    async def judge(self, evidence: Evidence) -> Verdict:
        judge = await self._choose()
        verdict = await judge.judge(evidence)
        if judge is self._model:
            return verdict
        return replace(verdict, reason=f"{verdict.reason}{NOT_ASKED}{self._model.name}: {self.why}")

    async def marked(self, evidence: Evidence, verdict: Verdict) -> Verdict:
        """By the one who judges, where it marks claims."""
        judge = await self._choose()
        return await judge.marked(evidence, verdict) if isinstance(judge, MarksClaims) else verdict

    def forget(self) -> None:
        """Both forget."""
        self._model.forget()
        self._own.forget()

    async def close(self) -> None:
        """Closes both."""
        await self._model.close()
        await self._own.close()

    async def _choose(self) -> Judge:
        async with self._choosing:
            if self._chosen is None and self._clock() >= self._again_at:
                await self._check()
            return self._chosen or self._own

    async def _check(self) -> None:
        cases = mixed([one for one in load(CHECK) if one.score])[:NUM_CASES]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def score(case: Example) -> Score | None:
            async with slots:
                return (await ask(self._model, case.evidence, deadline_s=None)).score

        scores = await asyncio.gather(*map(score, cases))
        passed = check_scores(cases, scores)
        self.why = f"{passed} of {len(cases)} known cases"
        if all(one is None for one in scores):
            self._again_at = self._clock() + _AGAIN_S
            self.why += "; asked again in ten minutes"
        else:
            self._chosen = self._model if passed.is_enough else self._own
        log.info("the judge %s: %s; %s judges", self._model.name, self.why, self.name)

"""A process that judges and credits whatever lies in a store, to be killed: `python -m tests.faults.judging_child DIR`.

Ends with status 0 when nothing is left to do. The judge is the default one, made slow by chance, so that kills hit it
at work; the loops, the store and the renderer are those of the pipeline.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from contextlib import suppress
from pathlib import Path

from openclaw_rl.config import load_config
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.judge.canaries import Canaries
from openclaw_rl.judge.loop import JudgeLoop, JudgeSettings
from openclaw_rl.judge.registry import make_judges
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Judge
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Evidence, Verdict

LEARNING = ("judge.leased", "judge.judged", "store.in_judgement", "credit.leased", "store.in_credit")
"""The places to be killed at that only the loops which learn pass; `test_judging.py` goes through them."""

MODEL_ID = "the-model#1"
SETTINGS = ("training.baseline_decay=0.001", "training.advantage=baseline")
"""So that the running mean is that of all rewards, in whatever order they were counted."""


class Unhurried:
    """A judge that takes its time."""

    def __init__(self, inner: Judge) -> None:
        self.name, self.prompt_version = inner.name, inner.prompt_version
        self._inner = inner

    async def judge(self, evidence: Evidence) -> Verdict:
        await asyncio.sleep(random.uniform(0.0, 0.01))
        return await self._inner.judge(evidence)

    def forget(self) -> None:
        self._inner.forget()

    async def close(self) -> None:
        await self._inner.close()


async def main(directory: Path) -> None:
    config = load_config(overrides=SETTINGS).config
    model = resolve_model(config.model)
    renderer = load_renderer(model.path, model.name)
    async with await SqliteStore.open(directory) as store:
        lessons = store.lessons
        await lessons.release_earlier()
        settings = JudgeSettings.of(config)
        judges = [Unhurried(judge) for judge in make_judges(config)]
        judging = JudgeLoop(lessons, judges, settings, canaries=Canaries.shipped(), watch=Metrics())
        crediting = CreditLoop(lessons, renderer, CreditSettings.of(config.training, config.rollout), MODEL_ID)
        loops = [asyncio.create_task(judging.run()), asyncio.create_task(crediting.run())]
        print("ready", flush=True)
        while await lessons.num_open("judge") or await lessons.num_open("credit"):
            await asyncio.sleep(0.01)
            for task in loops:
                if task.done():
                    task.result()
        for task in loops:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(Path(sys.argv[1])))

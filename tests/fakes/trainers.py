"""Trainers for tests: `protocols.Trainer` without a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from openclaw_rl.train.local import LocalTrainer, LocalWeights
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import ScoreOrder, ScoreReport, StepOrder, StepReport


class StubTrainer(LocalWeights):
    """Keeps weights as the local one does; what a step does is for others to say."""

    capabilities = LocalTrainer.capabilities

    async def step(self, order: StepOrder) -> StepReport:
        raise NotImplementedError

    async def score(self, order: ScoreOrder) -> ScoreReport:
        raise NotImplementedError

    async def rehearse(self, order: StepOrder) -> None: ...

    async def close(self) -> None: ...


class TrainerHere(StubTrainer):
    """The real steps, in this process."""

    def __init__(self, trainer: TorchTrainer, folder: Path) -> None:
        super().__init__(folder)
        self._trainer = trainer

    async def step(self, order: StepOrder) -> StepReport:
        return await asyncio.to_thread(self._trainer.step, order, self.new_checkpoint(order.line, order.number))

"""A process that trains on whatever lies in a store, to be killed.

python -m tests.faults.training_child DIR MODEL [NAME:COUNT ...]

Ends with status 0 when nothing is left to learn from. The names are places for the trainer's process to die at, one
process after the other: the loop goes on with the next. Loop, planner, trainer and releaser are those of the pipeline;
the engine is one that checks what it is given and serves nothing, and the gate finds nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from openclaw_rl.config.learning import TrainingConfig
from openclaw_rl.engine.worker.admission import verify
from openclaw_rl.errors import TrainerLost
from openclaw_rl.protocols import Trainer
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.train.loop import LoopSettings, TrainLoop
from openclaw_rl.train.planning import Planner
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Publication,
    Scored,
    ScoreRequest,
    StepOrder,
    StepReport,
)
from tests.fakes.release import NOWHERE, OpenDoor
from tests.fakes.trainers import StubTrainer

CONTROL = (
    "train.planned",
    "train.reported",
    "store.in_step",
    "train.finished",
    "release.published",
    "release.measured",
    "release.marked",
    "release.live",
)
WORKER = ("trainer.ordered", "trainer.moved", "trainer.in_checkpoint", "trainer.before_rename", "trainer.renamed")
TRAINING = (*CONTROL, *WORKER)
"""The places to be killed at that only training and releasing pass; `test_training_kills.py` goes through them."""

ANCHORS = ((1, 7, 8), (1, 9, 10, 11))
CRASH_AT = "OPENCLAW_RL_CRASH_AT"


class CheckingEngine:
    """Loads nothing, but refuses what does not hash to what it should."""

    async def publish(self, publication: Publication) -> None:
        verify(publication)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        yield Delta(token_ids=(5, 6), logprobs=(0.0, 0.0), version=request.version or "v0", finish_reason="stop")

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        sizes = [len(ids) - start for ids, start in zip(request.sequences, request.starts, strict=True)]
        return tuple(Scored(logprobs=(-1.0,) * size) for size in sizes)

    async def retire(self, version: str) -> None: ...

    async def forget_cache(self, salts: Collection[str]) -> None: ...

    async def state(self) -> EngineState:
        raise NotImplementedError

    async def close(self) -> None: ...


def training(**changes: Any) -> dict[str, Any]:
    """The section `training` as a worker gets it."""
    values: dict[str, Any] = json.loads(TrainingConfig().model_dump_json())
    return values | {"learning_rate": 0.01, "lora_rank": 4, "lora_dropout": 0.1} | changes


def make_loop(store: SqliteStore, trainer: Trainer, releaser: Releaser, **changes: Any) -> TrainLoop:
    """As the pipeline makes it, for batches of three."""
    planner = Planner(
        store.lessons,
        TrainingConfig(batch_size=3, max_steps=None, max_staleness=4, replay_max_age=2, anchors=1, seed=5),
        choose=lambda samples: samples,
    )
    settings = LoopSettings(
        batch_size=3,
        max_wait_s=0.0,
        pause_s=0.0,
        training=training(**changes),
        anchors=ANCHORS,
        stop_token_ids=(2,),
    )
    return TrainLoop(store.lessons, trainer, planner, settings, release=releaser.release)


def make_releaser(store: SqliteStore) -> Releaser:
    engine = CheckingEngine()
    door = OpenDoor()
    return Releaser(store.lessons, engine, door, LiveVersions(), proving=door, keeper=NOWHERE, save_every=1)


class Doomed(StubTrainer):
    """A trainer whose processes die, one after the other, each at its own place."""

    def __init__(self, inner: LocalTrainer, folder: Path, places: list[str]) -> None:
        super().__init__(folder)
        self._inner = inner
        self._places = places
        self._doom()

    async def step(self, order: StepOrder) -> StepReport:
        try:
            return await self._inner.step(order)
        except TrainerLost:
            print("lost", flush=True)
            self._doom()
            raise

    def _doom(self) -> None:
        os.environ.pop(CRASH_AT, None)  # this process has read its own long ago
        if self._places:
            os.environ[CRASH_AT] = self._places.pop(0)


async def main(directory: Path, model: Path, places: list[str]) -> None:
    async with await SqliteStore.open(directory) as store:
        releaser = make_releaser(store)
        await releaser.restore()
        versions = directory / "versions"
        trainer = LocalTrainer(model, versions, {"device": "cpu", "threads": 1}, scratch=directory / "orders")
        loop = make_loop(store, Doomed(trainer, versions, places), releaser)
        print("ready", flush=True)
        try:
            is_done = False
            while not is_done:
                with suppress(TrainerLost):
                    await loop.work(at_once=True)
                    is_done = True
        finally:
            await trainer.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))

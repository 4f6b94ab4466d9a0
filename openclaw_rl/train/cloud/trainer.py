"""`protocols.Trainer` over a service: a worker process that speaks to it, and the names of what is kept there.

    FOLDER/v3.tinker.json       what step 3 saved, or was about to: snapshots are found by it, and removed

No step is taken over the daily budget: the line rests and says why, and chat goes on. Knows no SDK.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from openclaw_rl.cloud.bill import over_budget
from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.cloud.service import Used
from openclaw_rl.config import Config
from openclaw_rl.config.environment import worker_environment
from openclaw_rl.errors import CloudError, TrainError
from openclaw_rl.train.cloud.form import check_form
from openclaw_rl.train.local import LocalTrainer, versions_folder
from openclaw_rl.types import (
    Json,
    StepOrder,
    StepReport,
    TrainerCapabilities,
    WeightsRef,
    version_label,
)

_log = logging.getLogger(__name__)


class CloudWeights:
    """`protocols.WeightsKeeper` for snapshots on a service."""

    def __init__(self, folder: Path, desk: ServiceDesk) -> None:
        self._folder = folder
        self._desk = desk

    async def discard(self, weights: WeightsRef) -> None:
        if weights.folder is not None:
            raise TrainError(
                f"{weights.uri} is a folder, and training.backend={self._desk.access.service} made none: remove it "
                "with the backend that made it"
            )
        await self._remove((weights.uri,))
        for path in await asyncio.to_thread(self._naming, weights.uri):
            path.unlink(missing_ok=True)

    async def abandon(self, line: str, number: int) -> None:
        path = names_file(self._folder, line, number, self._desk)
        if (names := await asyncio.to_thread(_read_names, path)) is not None:
            await self._remove(names[:1])  # the first stands for all that belong to it
            path.unlink(missing_ok=True)

    def adopt(self, folder: Path, line: str) -> Callable[[int], WeightsRef]:
        raise TrainError(
            f"{self._desk.access.place} takes no adapter from elsewhere: `openclaw-rl import` needs "
            "training.backend=local"
        )

    async def _remove(self, uris: Sequence[str]) -> None:
        try:
            await asyncio.to_thread(self._desk.remove, uris)
        except CloudError as error:
            raise TrainError(f"{uris[0]} stays for now: {error}") from error

    def _naming(self, uri: str) -> list[Path]:
        return [path for path in self._folder.glob("*.json") if uri in (_read_names(path) or ())]


class CloudTrainer(LocalTrainer):
    """Orders go to a worker that asks the service."""

    capabilities = TrainerCapabilities(lora=True, full_weights=False, scores=True, custom_loss=False)

    def __init__(self, desk: ServiceDesk, folder: Path, *, budget: float | None, scratch: Path) -> None:
        super().__init__(folder, folder, {}, scratch=scratch)
        self._desk = desk
        self._kept = CloudWeights(folder, desk)
        self._budget = budget

    @classmethod
    def of(cls, config: Config, model: Path) -> Self:
        """As configured; `ConfigError` for what a service cannot follow."""
        training = config.training
        check_form(training.model_dump())
        desk, scratch = ServiceDesk.of(config), config.store.data_dir / "run" / "orders"
        return cls(desk, versions_folder(config), budget=training.cloud.daily_budget, scratch=scratch)

    async def step(self, order: StepOrder) -> StepReport:
        cost = self._desk.prices.cost(estimate(order))
        if why := over_budget(await asyncio.to_thread(self._desk.till.bill), cost, self._budget):
            raise TrainError(why)
        return await super().step(order)

    async def discard(self, weights: WeightsRef) -> None:
        await self._kept.discard(weights)

    async def abandon(self, line: str, number: int) -> None:
        await self._kept.abandon(line, number)

    def adopt(self, folder: Path, line: str) -> Callable[[int], WeightsRef]:
        return self._kept.adopt(folder, line)

    def new_checkpoint(self, line: str, number: int) -> Path:
        """The file with the names."""
        super().new_checkpoint(line, number)
        return names_file(self._folder, line, number, self._desk)

    def _command(self, options: Mapping[str, Json]) -> Sequence[str]:
        return (sys.executable, "-m", "openclaw_rl.train.cloud", "--options", json.dumps(self._desk.options()))

    def _environment(self) -> dict[str, str]:
        return {**worker_environment(), **self._desk.environment()}


def estimate(order: StepOrder) -> Used:
    """What a step will use at most, before it is asked for: every sample read twice in each epoch, and its teachers."""
    epochs = order.settings["num_epochs"]
    assert isinstance(epochs, int)
    found = Used(sample=32 * len(order.anchors) + 64 * len(order.exercises))
    for sample in order.samples:
        said = len(sample.response_ids)
        own = len(sample.prompt_ids) + said
        taught = sum(len(sample.teacher_prompt(one)) + said for one in sample.candidates)
        found += Used(prefill=own * (epochs + 1) + taught, train=own * epochs)
    return found


def names_file(folder: Path, line: str, number: int, desk: ServiceDesk) -> Path:
    return folder / f"{version_label(line, number)}.{desk.access.service}.json"


def _read_names(path: Path) -> tuple[str, ...] | None:
    try:
        return tuple(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None

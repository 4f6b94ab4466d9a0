"""`protocols.Trainer` over the GPUs of this machine: one process for each, which take every step together.

Orders, reports and checkpoints are those of `train/local.py`; rank 0 of the processes takes the orders. When one rank
dies the order is lost, as with one process: its samples go back, and all ranks start again. Knows no tensors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from openclaw_rl.config import Config
from openclaw_rl.protocols import Trainer
from openclaw_rl.train.fsdp.joined import JoinedTrainer
from openclaw_rl.train.fsdp.processes import RankProcesses
from openclaw_rl.train.local import LocalTrainer, versions_folder, worker_options
from openclaw_rl.types import Json


class FsdpTrainer(LocalTrainer):
    """Trains `model` in `num_ranks` processes."""

    def __init__(
        self,
        model: Path,
        folder: Path,
        options: Mapping[str, Json],
        *,
        num_ranks: int,
        scratch: Path | None = None,
    ) -> None:
        super().__init__(model, folder, options, scratch=scratch)
        self._num_ranks = num_ranks
        self._ranks: RankProcesses | None = None

    @classmethod
    def of(cls, config: Config, model: Path) -> Self:
        return cls(
            model,
            versions_folder(config),
            worker_options(config),
            num_ranks=config.training.num_ranks,
            scratch=config.store.data_dir / "run" / "orders",
        )

    @property
    def pids(self) -> list[int]:
        """Of all ranks."""
        return [] if self._ranks is None else self._ranks.pids

    async def _start(self) -> asyncio.subprocess.Process:
        meet = await asyncio.to_thread(self._new_meeting)
        self._ranks = await RankProcesses.start(self._model, self._options_now(), size=self._num_ranks, meet=meet)
        self._process = self._ranks.first
        return self._process

    def _new_meeting(self) -> Path:
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        meet = self._scratch / "meeting"
        meet.unlink(missing_ok=True)
        return meet

    async def _ask(self, process: asyncio.subprocess.Process, line: bytes) -> bytes | None:
        said = await super()._ask(process, line)
        if said is None or (lost := json.loads(said).get("lost")) is None:
            return said
        assert self._ranks is not None
        self._ranks.heard(f"rank 0: {lost}")
        return None

    async def _epitaph(self, process: asyncio.subprocess.Process) -> str:
        assert self._ranks is not None
        told = await self._ranks.epitaph()
        self._process = self._ranks = None
        return told

    async def _end(self) -> None:
        ranks, self._ranks, self._process = self._ranks, None, None
        if ranks is not None:
            await ranks.end()


def fsdp_trainer(config: Config, model: Path) -> Trainer:
    """Processes that are started here, or those that join."""
    return (FsdpTrainer if config.training.ranks == "started" else JoinedTrainer).of(config, model)

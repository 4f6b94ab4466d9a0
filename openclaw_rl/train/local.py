"""`protocols.Trainer` on this machine: a worker process that takes orders, and the folder that keeps versions' weights.

    FOLDER/v3/weights, FOLDER/v3/trainer     a checkpoint: what engines load, and what the next step needs besides

The worker starts with the first order or its rehearsal, and again after it died. Orders and reports are private files
(wire.py): a line to the worker names them, its answer says that the report is there. Both are removed when the report
was read; what a crash left of them is removed when the next trainer is made. Knows no tensors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Self

from openclaw_rl.config import Config
from openclaw_rl.config.environment import worker_environment
from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.model.folder import folder_sha256, sync, sync_folder, unfinished
from openclaw_rl.train.wire import TEACHER_KEY, Order, Report, read_report, write_order
from openclaw_rl.types import (
    Json,
    ScoreOrder,
    ScoreReport,
    StepOrder,
    StepReport,
    TrainerCapabilities,
    WeightsRef,
    version_label,
)

_log = logging.getLogger(__name__)

WEIGHTS = "weights"
_STOP_S = 5.0


class LocalWeights:
    """`protocols.WeightsKeeper` on a folder of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def discard(self, weights: WeightsRef) -> None:
        """The whole checkpoint: the folder around what engines load."""
        if (folder := weights.folder) is None or folder.name != WEIGHTS:
            raise TrainError(
                f"{weights.uri} is no version's folder here; set training.backend to the trainer that made it"
            )
        await asyncio.to_thread(_remove, folder.parent)

    async def abandon(self, line: str, number: int) -> None:
        checkpoint = self._checkpoint(line, number)
        for folder in (checkpoint, unfinished(checkpoint)):
            await asyncio.to_thread(_remove, folder)

    def adopt(self, folder: Path, line: str) -> Callable[[int], WeightsRef]:
        """It has no folder `trainer`: training goes on from it with a fresh optimiser."""
        scratch = unfinished(self._folder / f"import of {line}")
        shutil.rmtree(scratch, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for made in (scratch, scratch / WEIGHTS):  # one by one: the mode is not that of parents
            made.mkdir(mode=0o700)
        for source in (folder / "adapter_config.json", folder / "adapter_model.safetensors"):
            shutil.copyfile(source, scratch / WEIGHTS / source.name)
        sync_folder(scratch / WEIGHTS)
        sync(scratch)
        sha256 = folder_sha256(scratch / WEIGHTS)

        def place(number: int) -> WeightsRef:
            target = self._checkpoint(line, number)
            shutil.rmtree(target, ignore_errors=True)  # of an import that was cut short: no version has this number
            scratch.rename(target)
            sync(self._folder)
            return WeightsRef.of_folder(target / WEIGHTS, sha256)

        return place

    def new_checkpoint(self, line: str, number: int) -> Path:
        """Where a step's checkpoint goes; the folder around it is there."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise TrainError(f"no folder for checkpoints ({error}); training.save_path names another") from error
        return self._checkpoint(line, number)

    def _checkpoint(self, line: str, number: int) -> Path:
        return self._folder / version_label(line, number)


class OrderingTrainer(LocalWeights):
    """What trainers have in common whose steps somebody else takes: one order at a time, to `_order`."""

    capabilities = TrainerCapabilities(lora=True, full_weights=True, scores=True, custom_loss=True)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.num_lost = 0
        self.one_at_a_time = asyncio.Lock()

    @property
    def shrink(self) -> int:
        """What parts of a step are divided by. One death is an accident. The kernel, when it is short of memory, kills
        without a word: then parts are smaller."""
        return 1 << max(0, self.num_lost - 1)

    async def step(self, order: StepOrder) -> StepReport:
        """Takes a step; errors as the protocol has them."""
        report = await self._order(order, self.new_checkpoint(order.line, order.number))
        assert isinstance(report, StepReport)
        return report

    async def score(self, order: ScoreOrder) -> ScoreReport:
        """Reads tokens under two versions; errors as of `step`."""
        report = await self._order(order)
        assert isinstance(report, ScoreReport)
        return report

    async def rehearse(self, order: StepOrder) -> None:
        """The worker takes the step and writes nothing."""
        await self._order(order)

    @abstractmethod
    async def _order(self, order: Order, target: Path | None = None) -> Report:
        """A step into `target`, a step that is rehearsed, or a reading."""


class LocalTrainer(OrderingTrainer):
    """Trains `model` in a process of its own; its checkpoints go to `folder`, its orders through `scratch`."""

    def __init__(
        self,
        model: Path,
        folder: Path,
        options: Mapping[str, Json],
        *,
        scratch: Path | None = None,
        teacher_key: str | None = None,
    ) -> None:
        super().__init__(folder)
        self._secrets = {} if teacher_key is None else {TEACHER_KEY: teacher_key}
        self._model = model
        self._options = dict(options)
        self._scratch = scratch or folder / ".orders"
        shutil.rmtree(self._scratch, ignore_errors=True)  # orders of a control process that was killed
        self._numbers = count(1)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, config: Config, model: Path) -> Self:
        """As configured."""
        key = config.training.teacher_api_key
        return cls(
            model,
            versions_folder(config),
            worker_options(config),
            scratch=config.store.data_dir / "run" / "orders",
            teacher_key=None if key is None else key.get_secret_value(),
        )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def _order(self, order: Order, target: Path | None = None) -> Report:
        async with self.one_at_a_time:
            process = await self._ready()
            number = next(self._numbers)
            there, back = self._scratch / f"order-{number}.jsonl", self._scratch / f"report-{number}.json"
            try:
                await asyncio.to_thread(self._write, there, order)
                line = {"order": str(there), "report": str(back), "target": None if target is None else str(target)}
                said = await self._ask(process, json.dumps(line).encode() + b"\n")
                if said is None:
                    self.num_lost += 1
                    raise TrainerLost(f"the trainer's process {await self._epitaph(process)}")
                self.num_lost = 0
                if (error := json.loads(said).get("error")) is not None:
                    raise TrainError(error)
                return await asyncio.to_thread(read_report, back)
            finally:
                there.unlink(missing_ok=True)
                back.unlink(missing_ok=True)

    def _write(self, path: Path, order: Order) -> None:
        try:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_order(path, order)
        except OSError as error:
            raise TrainError(
                f"no order can be written to {self._scratch} ({error}); free some space there, or move store.data_dir"
            ) from error

    async def close(self) -> None:
        """Ends the process, also in the middle of an order."""
        await self._end()

    async def _ready(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self._end()  # of one that died between two orders
        process = await self._start()
        if await self._ask(process, b"") is None:
            raise TrainError(f"the trainer's process does not start: it {await self._epitaph(process)}")
        return process

    def _options_now(self) -> dict[str, Json]:
        return {**self._options, "shrink": self.shrink}

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command(self._options_now()),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._environment(),
            start_new_session=True,  # a Ctrl-C reaches only us
        )
        self._reading = asyncio.create_task(self._pass_on_logs(self._process))
        return self._process

    def _command(self, options: Mapping[str, Json]) -> Sequence[str]:
        """What starts the worker."""
        module = (sys.executable, "-m", "openclaw_rl.train.worker")
        return (*module, "--model", str(self._model), "--options", json.dumps(options))

    def _environment(self) -> dict[str, str]:
        return worker_environment() | self._secrets

    async def _ask(self, process: asyncio.subprocess.Process, line: bytes) -> bytes | None:
        """The next line that it says; None if it ends without one."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            await process.stdin.drain()
            said = await process.stdout.readline()
        except (BrokenPipeError, ConnectionResetError):
            return None
        except asyncio.CancelledError:
            await self._end()  # its report would be taken for that of the next order
            raise
        return said if said.endswith(b"\n") else None

    async def _epitaph(self, process: asyncio.subprocess.Process) -> str:
        status = await process.wait()
        await self._end()
        return f"ended with status {status}; the log has its last words"

    async def _pass_on_logs(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            _log.info("trainer: %s", line.decode(errors="replace").rstrip()[:2000])

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading


def worker_options(config: Config) -> dict[str, Json]:
    """What a trainer's process is told of the machine that it computes on."""
    return {
        "device": config.training.device or config.engine.device,
        "dtype": config.training.dtype or config.engine.dtype,
        "threads": config.engine.threads,
        "gpu_ids": list(config.training.gpu_ids),
    }


def versions_folder(config: Config) -> Path:
    """Where checkpoints go."""
    return config.training.save_path or config.store.data_dir / "versions"


def _remove(folder: Path) -> None:
    """As much of a folder as there is and can be removed."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise TrainError(
                f"{folder} cannot be removed ({error.strerror or error}); remove it yourself, or make it removable"
            ) from error

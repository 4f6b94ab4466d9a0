"""`protocols.Trainer` as a process of its own: orders go in, reports come out; what dies is started again when needed.

Knows no tensors. A process that died in the middle of an order is a `TrainerLost`: the order can be given again. One
that never came so far as to take an order is a `TrainError`: that is no order's fault.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from openclaw_rl.config import Config
from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.wire import ScoreOrder, ScoreReport, StepOrder, StepReport
from openclaw_rl.types import Json

_log = logging.getLogger(__name__)

_LINE_LIMIT = 64 << 20
_STOP_S = 5.0


class TrainerProcess:
    """Starts with the first order."""

    def __init__(self, model: Path, options: Mapping[str, Json]) -> None:
        self._model = model
        self._options = dict(options)
        self._num_lost = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    def of(cls, config: Config, model: Path) -> Self:
        """As configured."""
        return cls(
            model,
            {
                "device": config.engine.device,
                "dtype": config.engine.dtype,
                "threads": config.engine.threads,
                "gpu_ids": list(config.training.gpu_ids),
            },
        )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def step(self, order: StepOrder) -> StepReport:
        """Carries out one order. `TrainError`: it cannot be done so; `TrainerLost`: the process died."""
        return StepReport.from_json(await self._order({"step": order.to_json()}))

    async def read(
        self,
        sequences: Sequence[tuple[int, ...]],
        starts: Sequence[int],
        *,
        parent: str | None,
        candidate: str,
        settings: Mapping[str, Json],
    ) -> ScoreReport:
        """What two versions' files make of these tokens; errors as of `step`."""
        order = ScoreOrder(
            sequences=tuple(sequences), starts=tuple(starts), parent=parent, candidate=candidate, settings=settings
        )
        return ScoreReport.from_json(await self._order({"score": order.to_json()}))

    async def _order(self, order: Mapping[str, Json]) -> Mapping[str, Json]:
        async with self._one_at_a_time:
            process = await self._ready()
            line = await self._ask(process, json.dumps(order).encode() + b"\n")
            if line is None:
                self._num_lost += 1
                raise TrainerLost(f"the trainer's process {await self._epitaph(process)}")
            self._num_lost = 0
            answer = json.loads(line)
            if "error" in answer:
                raise TrainError(answer["error"])
            report: Mapping[str, Json] = answer["report"]
            return report

    async def close(self) -> None:
        """Ends the process, also in the middle of an order: whatever it was at can be ordered again."""
        await self._end()

    async def _ready(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self._end()  # of one that died between two orders
        process = await self._start()
        if await self._ask(process, b"") is None:
            raise TrainError(f"the trainer's process does not start: it {await self._epitaph(process)}")
        return process

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        # One death is an accident. The kernel, when it is short of memory, kills without a word: then smaller parts.
        options = {**self._options, "shrink": 2 ** max(0, self._num_lost - 1)}
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "openclaw_rl.train"),
            *("--model", str(self._model), "--options", json.dumps(options)),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=_LINE_LIMIT,
            start_new_session=True,  # a Ctrl-C reaches only us
        )
        self._reading = asyncio.create_task(self._pass_on_logs(self._process))
        return self._process

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

"""`protocols.Trainer` as a process of its own: orders go in, reports come out; what dies is started again when needed.

Knows no tensors. A process that died in the middle of an order is a `TrainerLost`: the order can be given again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.wire import StepOrder, StepReport
from openclaw_rl.types import Json

_log = logging.getLogger(__name__)

_LINE_LIMIT = 64 << 20
_STOP_S = 5.0


class TrainerProcess:
    """Starts with the first order."""

    def __init__(self, model: Path, options: Mapping[str, Json]) -> None:
        self._command = (
            *(sys.executable, "-m", "openclaw_rl.train"),
            *("--model", str(model), "--options", json.dumps(dict(options))),
        )
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def step(self, order: StepOrder) -> StepReport:
        """Carries out one order. `TrainError`: it cannot be done so; `TrainerLost`: the process died."""
        async with self._one_at_a_time:
            process = await self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(order.to_json()).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
            except (BrokenPipeError, ConnectionResetError):
                line = b""
            except asyncio.CancelledError:
                await self._end()  # its report would be taken for that of the next order
                raise
            if not line.endswith(b"\n"):
                status = await process.wait()
                await self._end()
                raise TrainerLost(f"the trainer's process ended with status {status}; the log has its last words")
            answer = json.loads(line)
            if "error" in answer:
                raise TrainError(answer["error"])
            return StepReport.from_json(answer["report"])

    async def close(self) -> None:
        """Ends the process, also in the middle of an order: whatever it was at can be ordered again."""
        await self._end()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LINE_LIMIT
            )
            self._reading = asyncio.create_task(self._pass_on_logs(self._process))
        return self._process

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

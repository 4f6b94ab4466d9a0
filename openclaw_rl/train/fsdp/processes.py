"""The ranks of this machine as child processes: started together, ended together.

Rank 0 of the group is talked to through its pipes. When one dies, the others are ended at once: they would wait for it.
Knows no tensors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.config.environment import worker_environment
from openclaw_rl.types import Json

_log = logging.getLogger(__name__)

_STOP_S = 5.0


class RankProcesses:
    """So many processes of one group. Made by `start`."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        self._words: dict[int, str] = {}
        self._reading = [
            *(asyncio.create_task(self._pass_on_logs(at, one)) for at, one in enumerate(processes)),
            *(asyncio.create_task(self._listen(at, one)) for at, one in enumerate(processes) if at > 0),
        ]
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls, model: Path, options: Mapping[str, Json], *, size: int, meet: Path, module: str = "openclaw_rl.train.fsdp"
    ) -> RankProcesses:
        """`size` ranks that meet at a file, which is there no more."""
        pipe = asyncio.subprocess.PIPE
        processes = []
        for rank in range(size):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
            processes.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", module, "--model", str(model)),
                    *("--options", json.dumps(dict(options)), "--meet", str(meet)),
                    stdin=pipe,
                    stdout=pipe,
                    stderr=pipe,
                    env={**_loopback(), **worker_environment(), **place},
                    start_new_session=True,  # a Ctrl-C reaches only us
                )
            )
        return cls(processes)

    @property
    def first(self) -> asyncio.subprocess.Process:
        """Rank 0, which takes orders."""
        return self._processes[0]

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in self._processes]

    async def epitaph(self) -> str:
        """How they ended; ends those that have not."""
        await self._watching
        await self.end()
        statuses = ", ".join(str(one.returncode) for one in self._processes)
        why = next(iter(self._words.values()), "the log has their last words")
        return f"ended with status {statuses}: {why}"

    def heard(self, words: str) -> None:
        """What rank 0 said last."""
        self._words.setdefault(0, words)

    async def end(self) -> None:
        """Ends all of them, also in the middle of an order."""
        self._watching.cancel()
        for one in self._processes:
            assert one.stdin is not None
            one.stdin.close()
            if one.returncode is None:
                one.terminate()
        for one in self._processes:
            try:
                await asyncio.wait_for(one.wait(), _STOP_S)
            except TimeoutError:
                one.kill()
                await one.wait()
        await asyncio.gather(*self._reading)

    async def _watch(self) -> None:
        """Until one has died; then no other is left."""
        await asyncio.wait(
            [asyncio.create_task(one.wait()) for one in self._processes], return_when=asyncio.FIRST_COMPLETED
        )
        for one in self._processes:
            if one.returncode is None:
                one.kill()

    async def _listen(self, rank: int, process: asyncio.subprocess.Process) -> None:
        """Ranks behind the first have nothing to say but why they end."""
        assert process.stdout is not None
        async for line in process.stdout:
            self._words.setdefault(rank, f"rank {rank}: {json.loads(line).get('lost', '')}")

    async def _pass_on_logs(self, rank: int, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            _log.info("trainer %d: %s", rank, line.decode(errors="replace").rstrip()[:2000])


def _loopback() -> dict[str, str]:
    """Ranks of one machine talk within it, whatever its name resolves to."""
    return {"GLOO_SOCKET_IFNAME": "lo"} if os.path.isdir("/sys/class/net/lo") else {}

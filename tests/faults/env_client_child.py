"""Attempts that are killed: `python -m tests.faults.env_client_child URL COUNT`. Prints a line when all are at work."""

from __future__ import annotations

import asyncio
import sys

from openclaw_rl.envs.leases.client import RemoteEnvServer
from openclaw_rl.envs.leases.leased import LeasedRoom
from tests.fakes.environments import task_ref


async def main(url: str, count: int) -> None:
    async with RemoteEnvServer(url, "key") as server:
        rooms = [
            LeasedRoom(server, task_ref(), request_id=f"killed-{number}", gateway="g", harness="")
            for number in range(count)
        ]
        await asyncio.gather(*(room.open() for room in rooms))
        print("at work", flush=True)
        await asyncio.gather(*(room.run("sleep 60", timeout_s=90.0, env={}) for room in rooms))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

"""An environment server to be killed: `python -m tests.faults.env_server_child MARKS PORT TTL_S`. Prints its URL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from openclaw_rl.envs.leases.http import run_env_server
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment


async def main(marks: Path, port: int, ttl_s: float) -> None:
    environment = CountingEnvironment(marks=marks)
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=64, ttl_s=ttl_s)
    await run_env_server(server, host="127.0.0.1", port=port, key="key", on_started=lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))

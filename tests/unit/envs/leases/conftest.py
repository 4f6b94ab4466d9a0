"""An environment server in three shapes: here, over HTTP, and behind a pool of two, one of which is gone."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.leases.client import RemoteEnvServer
from openclaw_rl.envs.leases.http import serve_envs
from openclaw_rl.envs.leases.pool import EnvPool
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import EnvError
from openclaw_rl.protocols import EnvServer
from tests.fakes.environments import CountingEnvironment

AT_ONCE = Backoff(first_s=0.001, longest_s=0.01)
KEY = "a-key-of-tests"
CAPACITY = 8


def programs_of(harness: str) -> Mapping[str, Path]:
    if harness != "tiny":
        raise EnvError(f"{harness} is not installed; run make harness")
    return {"/opt/tiny": Path("/usr/share/tiny")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leasing:
    """`inner` is the server that has the rooms, `outer` how tests reach it."""

    environment: CountingEnvironment
    inner: LocalEnvServer
    outer: EnvServer


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest_asyncio.fixture(params=["here", "over-http", "in-a-pool"])
async def leasing(request: pytest.FixtureRequest) -> AsyncIterator[Leasing]:
    environment = CountingEnvironment()
    inner = LocalEnvServer({"counting": environment}, programs_of, capacity=CAPACITY, capacity_per_task=6)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(inner)
        outer: EnvServer = inner
        if request.param != "here":
            # Held for a moment only, so that most calls are asked for more than once.
            url = await stack.enter_async_context(serve_envs(inner, key=KEY, hold_s=0.02))
            outer = await stack.enter_async_context(RemoteEnvServer(url, KEY))
        if request.param == "in-a-pool":
            gone = RemoteEnvServer(f"http://127.0.0.1:{free_port()}", retries=1, backoff=AT_ONCE)
            outer = EnvPool([await stack.enter_async_context(gone), outer])
        yield Leasing(environment=environment, inner=inner, outer=outer)
    assert not environment.open_rooms
    assert all(room.num_closes == 1 for room in environment.rooms), "every room is closed once"

"""A lease -> a `Room`, so that those who attempt tasks do not know where rooms are.

Opening waits for a free room, within limits; then the lease is kept alive until the room is closed. A holder that dies
sends no heartbeats any more, and the server ends the lease by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import count

from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, OpenClawError
from openclaw_rl.protocols import EnvServer
from openclaw_rl.types import Grade, Observation, Opening, Ran, RoomLease, TaskRef, ToolCall

_log = logging.getLogger(__name__)

_BEATS_PER_TTL = 3
"""So two in a row may be lost."""


class LeasedRoom:
    """The `Room` of one attempt, on lease from a server. `request_id` is the attempt's own, and used once.

    Waits for a free room up to `max_wait_s`, then raises the last `EnvBusy`.
    """

    def __init__(
        self,
        server: EnvServer,
        task: TaskRef,
        *,
        request_id: str,
        gateway: str,
        harness: str,
        max_wait_s: float = 600.0,
    ) -> None:
        self._server = server
        self._task = task
        self._request_id = request_id
        self._gateway = gateway
        self._harness = harness
        self._max_wait_s = max_wait_s
        self._keys = map(str, count(1))
        self._lease: RoomLease | None = None
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> Opening:
        if self._lease is None:
            self._lease = await self._allocated()
            self._beating = asyncio.create_task(self._beat(self._lease))
        key = next(self._keys)
        return await self._server.reset(self._lease.id, key=key, gateway=self._gateway, harness=self._harness)

    async def solve(self) -> None:
        await self._server.solve(self._id, key=next(self._keys))

    async def step(self, call: ToolCall) -> Observation:
        return await self._server.step(self._id, call, key=next(self._keys))

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        return await self._server.exec(self._id, command, key=next(self._keys), timeout_s=timeout_s, env=env)

    async def evaluate(self) -> Grade:
        return await self._server.evaluate(self._id)

    async def close(self) -> None:
        """Gives the room back. A server that is gone ends the lease by itself, if it still lives."""
        lease, self._lease = self._lease, None
        beating, self._beating = self._beating, None
        if lease is None or beating is None:
            return
        beating.cancel()
        try:
            await self._server.close(lease.id)
        except EnvGone as gone:
            _log.warning("a room of %s is left to its server: %s", self._task.environment, gone)
        finally:
            await asyncio.wait((beating,))

    @property
    def _id(self) -> str:
        if self._lease is None:
            raise EnvError(f"the room for {self._task.name!r} is not open")
        return self._lease.id

    async def _allocated(self) -> RoomLease:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_wait_s
        while True:
            try:
                return await self._server.allocate(self._task, request_id=self._request_id)
            except EnvBusy as busy:
                if loop.time() + busy.retry_after_s > deadline:
                    raise
                pause_s = busy.retry_after_s
            await asyncio.sleep(pause_s)

    async def _beat(self, lease: RoomLease) -> None:
        """Also after a failure, which may pass; the calls of the room tell whoever acts in it."""
        is_told = False
        while True:
            await asyncio.sleep(lease.ttl_s / _BEATS_PER_TTL)
            try:
                await self._server.heartbeat(lease.id)
                is_told = False
            except OpenClawError as error:
                if not is_told:
                    _log.warning("a room of %s may be lost: %s", self._task.environment, error)
                is_told = True

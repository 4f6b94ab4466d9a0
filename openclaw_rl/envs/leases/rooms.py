"""Tasks -> rooms on lease on this machine. It knows neither HTTP nor what an environment is.

Consumes heartbeats; produces the end of leases that have none; waits for the next one to expire; woken by the clock.
A lease takes a place from its allocation until its room is closed, so that no more rooms than `capacity` are ever
open. Callers may vanish: what they began goes on, and what they leave ends with their lease.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from openclaw_rl.envs.leases.tenancy import Tenancy
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, TaskError
from openclaw_rl.protocols import Environment, Room
from openclaw_rl.types import Grade, Json, Observation, Opening, Ran, RoomLease, Task, TaskRef, ToolCall

_MAX_REMEMBERED = 8192
"""Ids of ended leases and of the requests they were for, with the reason of their end."""


class LocalEnvServer:
    """An `EnvServer` over environments in this process. Made anywhere; used and closed inside one event loop.

    `harness_programs`: what a harness of this name needs in a room; may block. `max_call_s` is what a room may take for
    anything but a command, which has a time limit of its own.
    """

    def __init__(
        self,
        environments: Mapping[str, Environment],
        harness_programs: Callable[[str], Mapping[str, Path]],
        *,
        capacity: int,
        capacity_per_task: int | None = None,
        ttl_s: float = 60.0,
        max_call_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environments = environments
        self._harness_programs = harness_programs
        self._capacity = capacity
        self._capacity_per_task = capacity if capacity_per_task is None else capacity_per_task
        self._ttl_s = ttl_s
        self._max_call_s = max_call_s
        self._clock = clock
        self._tenancies: OrderedDict[str, Tenancy] = OrderedDict()
        """By lease, the one that expires next first: all live equally long after their last heartbeat."""
        self._endings: dict[str, tuple[Tenancy, asyncio.Task[None]]] = {}
        """By lease: those that are over, whose rooms are being closed."""
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._reaping: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def tasks(self, environment: str, source: str) -> Sequence[Task]:
        return await self._environment(environment).tasks(source)

    async def allocate(self, task: TaskRef, *, request_id: str) -> RoomLease:
        """Takes a place; the room itself is made by `reset`. Never waits, so that a caller who leaves loses nothing."""
        self._end_overdue()
        held = next((t for t in self._tenancies.values() if t.request_id == request_id), None)
        if held is not None:
            if held.task != task:
                raise EnvError(f"request {request_id!r} has a room for another task; use a request id of its own")
            return self._renewed(held)
        if (reason := self._ended.get(request_id)) is not None:
            raise EnvGone(f"the lease of request {request_id!r} has ended: {reason}; ask with a new request id")
        if self._is_stopping:
            raise EnvGone("this environment server is stopping")
        environment = self._environment(task.environment)
        self._check_vacancy(task)
        tenancy = Tenancy(
            lease=secrets.token_hex(8),
            request_id=request_id,
            task=task,
            make_room=partial(self._room, environment, task),
            max_call_s=self._max_call_s,
        )
        self._tenancies[tenancy.lease] = tenancy
        if self._reaping is None or self._reaping.done():
            self._reaping = asyncio.create_task(self._reap())
        return self._renewed(tenancy)

    async def heartbeat(self, lease: str) -> RoomLease:
        return self._renewed(self._tenancy(lease))

    async def reset(self, lease: str, *, key: str, gateway: str, harness: str) -> Opening:
        return await self._called(lease).reset(key=key, gateway=gateway, harness=harness)

    async def solve(self, lease: str, *, key: str) -> None:
        await self._called(lease).solve(key=key)

    async def step(self, lease: str, call: ToolCall, *, key: str) -> Observation:
        return await self._called(lease).step(call, key=key)

    async def exec(self, lease: str, command: str, *, key: str, timeout_s: float, env: Mapping[str, str]) -> Ran:
        return await self._called(lease).run(command, key=key, timeout_s=timeout_s, env=env)

    async def evaluate(self, lease: str) -> Grade:
        return await self._called(lease).evaluate()

    async def close(self, lease: str) -> None:
        if (tenancy := self._tenancies.get(lease)) is not None:
            self._end(tenancy, "it was closed")
        if lease in self._endings:
            await asyncio.wait((self._endings[lease][1],))

    async def status(self) -> Mapping[str, Json]:
        self._end_overdue()
        return {
            "environments": sorted(self._environments),
            "capacity": self._capacity,
            "capacity_per_task": self._capacity_per_task,
            "ttl_s": self._ttl_s,
            "leases": len(self._tenancies),
            "closing": len(self._endings),
            "rooms": [tenancy.state for tenancy in self._tenancies.values()],
        }

    async def aclose(self) -> None:
        """Ends every lease and closes every room; nothing is left, and nothing is leased any more."""
        self._is_stopping = True
        for tenancy in tuple(self._tenancies.values()):
            self._end(tenancy, "the environment server stopped")
        if self._reaping is not None:
            self._reaping.cancel()
            await asyncio.wait((self._reaping,))
        if self._endings:
            await asyncio.wait([ending for _, ending in self._endings.values()])

    def _environment(self, name: str) -> Environment:
        try:
            return self._environments[name]
        except KeyError:
            known = ", ".join(sorted(self._environments))
            raise TaskError(f"there is no environment {name!r} on this server; it has {known}") from None

    async def _room(self, environment: Environment, task: TaskRef, gateway: str, harness: str) -> Room:
        programs = await asyncio.to_thread(self._harness_programs, harness) if harness else {}
        return await environment.room(task, gateway=gateway, programs=programs)

    def _check_vacancy(self, task: TaskRef) -> None:
        taken = Counter(t.task for t in (*self._tenancies.values(), *(t for t, _ in self._endings.values())))
        if taken.total() >= self._capacity:
            raise EnvBusy(f"all {self._capacity} rooms of this server are taken")
        if taken[task] >= self._capacity_per_task:
            raise EnvBusy(f"all {self._capacity_per_task} rooms that this server has for {task.name!r} are taken")

    def _called(self, lease: str) -> Tenancy:
        """The tenancy that a call is for. A call is a sign of life too."""
        tenancy = self._tenancy(lease)
        self._renewed(tenancy)
        return tenancy

    def _tenancy(self, lease: str) -> Tenancy:
        self._end_overdue()
        tenancy = self._tenancies.get(lease)
        if tenancy is None:
            reason = self._ended.get(lease, "this server does not know it; it may have been started anew")
            raise EnvGone(f"lease {lease} has ended: {reason}")
        return tenancy

    def _renewed(self, tenancy: Tenancy) -> RoomLease:
        tenancy.expires_at = self._clock() + self._ttl_s
        self._tenancies.move_to_end(tenancy.lease)
        return RoomLease(id=tenancy.lease, task=tenancy.task, ttl_s=self._ttl_s)

    async def _reap(self) -> None:
        """Runs while there are leases. A lease that comes later, or beats, expires later than the one waited for."""
        while self._tenancies:
            soonest = next(iter(self._tenancies.values()))
            await asyncio.sleep(max(0.0, soonest.expires_at - self._clock()))
            self._end_overdue()

    def _end_overdue(self) -> None:
        now = self._clock()
        while self._tenancies and (soonest := next(iter(self._tenancies.values()))).expires_at <= now:
            self._end(soonest, f"it had no heartbeat for {self._ttl_s:g} s")

    def _end(self, tenancy: Tenancy, reason: str) -> None:
        """The lease is over at once; its room is closed in the background, and counts until then."""
        del self._tenancies[tenancy.lease]
        tenancy.ended = reason
        for name in (tenancy.lease, tenancy.request_id):
            self._ended[name] = reason
        while len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)
        ending = asyncio.create_task(tenancy.end())
        self._endings[tenancy.lease] = (tenancy, ending)
        ending.add_done_callback(lambda _: self._endings.pop(tenancy.lease))

"""Several environment servers as one. It does not know where they are.

A room is asked for where fewest of ours are, and elsewhere if that server is full or gone. A server that is gone is
asked again after a pause that grows, and at once when there is no other. What was leased there is gone with it. The
name of a lease tells its server: `1.4f0c9a77d2b4e680` is at the second one.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import ConfigError, EnvBusy, EnvGone
from openclaw_rl.protocols import EnvServer
from openclaw_rl.types import Grade, Json, Observation, Opening, Ran, RoomLease, Task, TaskRef, ToolCall

_BACKOFF = Backoff(first_s=1.0, longest_s=120.0)

_MAX_REMEMBERED = 8192
"""Requests whose server is known."""


@dataclass(slots=True, kw_only=True)
class _Member:
    """A server and what this pool knows of it. `rests_until`: it was gone, and is not asked before."""

    index: int
    server: EnvServer
    leases: set[str] = field(default_factory=set)
    num_asking: int = 0
    num_failures: int = 0
    rests_until: float = 0.0

    @property
    def load(self) -> int:
        return len(self.leases) + self.num_asking


class EnvPool:
    """An `EnvServer` over others, which are closed by whoever made them."""

    def __init__(
        self,
        servers: Sequence[EnvServer],
        *,
        backoff: Backoff = _BACKOFF,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not servers:
            raise ConfigError("a pool needs at least one environment server")
        self._members = [_Member(index=index, server=server) for index, server in enumerate(servers)]
        self._backoff = backoff
        self._clock = clock
        self._homes: OrderedDict[str, _Member] = OrderedDict()
        """Where the room of a request is: there it stays, whatever becomes of the server."""
        self._seeking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One at a time looks for the room of a request."""

    async def tasks(self, environment: str, source: str) -> Sequence[Task]:
        """As the first server that answers lists them."""
        gone: list[str] = []
        for member in self._in_order():
            try:
                return await member.server.tasks(environment, source)
            except EnvGone as error:
                self._failed(member)
                gone.append(str(error))
        raise EnvGone(f"no environment server answers: {'; '.join(gone)}")

    async def allocate(self, task: TaskRef, *, request_id: str) -> RoomLease:
        """Whoever asks with the same request id gets the same room, also while it is still looked for."""
        async with self._seeking.setdefault(request_id, asyncio.Lock()):
            if (home := self._homes.get(request_id)) is not None:
                return await self._allocated(home, task, request_id)
            home, lease = await self._seek(task, request_id)
            self._homes[request_id] = home
            while len(self._homes) > _MAX_REMEMBERED:
                self._homes.popitem(last=False)
            return lease

    async def heartbeat(self, lease: str) -> RoomLease:
        member, inner = self._home(lease)
        return replace(await member.server.heartbeat(inner), id=lease)

    async def reset(self, lease: str, *, key: str, gateway: str, harness: str) -> Opening:
        member, inner = self._home(lease)
        return await member.server.reset(inner, key=key, gateway=gateway, harness=harness)

    async def solve(self, lease: str, *, key: str) -> None:
        member, inner = self._home(lease)
        await member.server.solve(inner, key=key)

    async def step(self, lease: str, call: ToolCall, *, key: str) -> Observation:
        member, inner = self._home(lease)
        return await member.server.step(inner, call, key=key)

    async def exec(self, lease: str, command: str, *, key: str, timeout_s: float, env: Mapping[str, str]) -> Ran:
        member, inner = self._home(lease)
        return await member.server.exec(inner, command, key=key, timeout_s=timeout_s, env=env)

    async def evaluate(self, lease: str) -> Grade:
        member, inner = self._home(lease)
        return await member.server.evaluate(inner)

    async def close(self, lease: str) -> None:
        member, inner = self._home(lease)
        member.leases.discard(inner)
        await member.server.close(inner)

    async def status(self) -> Mapping[str, Json]:
        """What each server says of itself, or why it does not."""
        said = await asyncio.gather(*map(self._status, self._members))
        return {"servers": said, "leases": sum(len(member.leases) for member in self._members)}

    async def _status(self, member: _Member) -> Mapping[str, Json]:
        try:
            return await member.server.status()
        except EnvGone as gone:
            return {"gone": str(gone)}

    async def _seek(self, task: TaskRef, request_id: str) -> tuple[_Member, RoomLease]:
        busy: list[EnvBusy] = []
        gone: list[EnvGone] = []
        for member in self._in_order():
            if busy and member.rests_until > self._clock():
                break  # room will be free elsewhere sooner than a server that was gone answers
            if member.num_failures:
                self._rest(member)  # one tries whether it is back; the others need not wait for that
            try:
                lease = await self._allocated(member, task, request_id)
            except EnvBusy as error:
                busy.append(error)
            except EnvGone as error:
                self._failed(member)
                gone.append(error)
            else:
                member.num_failures, member.rests_until = 0, 0.0
                return member, lease
        told = "; ".join(map(str, (*busy, *gone)))
        if busy:
            raise EnvBusy(told, retry_after_s=min(error.retry_after_s for error in busy))
        raise EnvGone(f"no environment server answers: {told}")

    async def _allocated(self, member: _Member, task: TaskRef, request_id: str) -> RoomLease:
        member.num_asking += 1
        try:
            lease = await member.server.allocate(task, request_id=request_id)
        finally:
            member.num_asking -= 1
        member.leases.add(lease.id)
        return replace(lease, id=f"{member.index}.{lease.id}")

    def _in_order(self) -> Sequence[_Member]:
        """Those that answer first, by how many rooms we have there; then those that rest, by how soon it is over."""
        now = self._clock()
        return sorted(self._members, key=lambda m: (max(0.0, m.rests_until - now), m.load, m.index))

    def _failed(self, member: _Member) -> None:
        member.num_failures += 1
        self._rest(member)

    def _rest(self, member: _Member) -> None:
        member.rests_until = self._clock() + self._backoff.pause_s(member.num_failures)

    def _home(self, lease: str) -> tuple[_Member, str]:
        index, _, inner = lease.partition(".")
        if not index.isdecimal() or int(index) >= len(self._members):
            raise EnvGone(f"lease {lease} is not of this pool")
        return self._members[int(index)], inner

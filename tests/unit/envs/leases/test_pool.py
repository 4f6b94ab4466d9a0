"""Several environment servers as one: who is asked for a room, and what becomes of servers that are full or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.leases.pool import EnvPool
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import ConfigError, EnvBusy, EnvGone, TaskError
from openclaw_rl.types import Json, RoomLease, Task, TaskRef
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment, call_of, task_ref


class FarServer(LocalEnvServer):
    """A server that can be away: then every question ends as over a network. `num_asked` counts what it is asked."""

    def __init__(self, environment: CountingEnvironment, capacity: int) -> None:
        super().__init__({"counting": environment}, lambda _: NO_PROGRAMS, capacity=capacity)
        self.environment = environment
        self.is_away = False
        self.num_asked = 0
        self.arrivals = asyncio.Event()
        self.arrivals.set()

    async def allocate(self, task: TaskRef, *, request_id: str) -> RoomLease:
        self.num_asked += 1
        self._answer()
        await self.arrivals.wait()
        return await super().allocate(task, request_id=request_id)

    async def tasks(self, environment: str, source: str) -> Sequence[Task]:
        self._answer()
        return await super().tasks(environment, source)

    async def status(self) -> Mapping[str, Json]:
        self._answer()
        return await super().status()

    def _answer(self) -> None:
        if self.is_away:
            raise EnvGone("it is away")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def servers(*capacities: int) -> list[FarServer]:
    return [FarServer(CountingEnvironment(), capacity) for capacity in capacities]


async def taken(pool: EnvPool, *names: str) -> list[str]:
    """The servers whose rooms the requests of these names got."""
    leases = [await pool.allocate(task_ref(), request_id=name) for name in names]
    return [lease.id.partition(".")[0] for lease in leases]


async def test_rooms_are_spread_and_full_servers_passed_over() -> None:
    pool = EnvPool(servers(1, 3))
    assert await taken(pool, "a", "b", "c", "d") == ["0", "1", "1", "1"]
    with pytest.raises(EnvBusy, match="all 1 rooms .* are taken; all 3 rooms .* are taken"):
        await pool.allocate(task_ref(), request_id="e")
    await pool.close((await pool.allocate(task_ref(), request_id="b")).id)
    assert await taken(pool, "e") == ["1"]


async def test_rooms_that_are_asked_for_at_once_are_spread_too() -> None:
    members = servers(9, 9)
    leases = await asyncio.gather(
        *(EnvPool(members).allocate(task_ref(), request_id=f"alone-{number}") for number in range(2))
    )
    assert {lease.id[0] for lease in leases} == {"0"}, "two pools do not know of each other"
    pool = EnvPool(members)
    for member in members:
        member.arrivals.clear()
    asked = [asyncio.ensure_future(pool.allocate(task_ref(), request_id=f"r-{number}")) for number in range(6)]
    await asyncio.sleep(0)
    for member in members:
        member.arrivals.set()
    assert sorted(lease.id[0] for lease in await asyncio.gather(*asked)) == list("000111")


async def test_a_request_has_one_room_whatever_becomes_of_its_server() -> None:
    members = servers(4, 4)
    pool = EnvPool(members)
    members[0].arrivals.clear()
    asked = [asyncio.ensure_future(pool.allocate(task_ref(), request_id="r")) for _ in range(3)]
    await asyncio.sleep(0)
    members[0].arrivals.set()
    first, second, third = await asyncio.gather(*asked)
    assert first == second == third
    assert (await pool.status())["leases"] == 1
    members[0].is_away = True
    with pytest.raises(EnvGone):
        await pool.allocate(task_ref(), request_id="r")
    assert await taken(pool, "other") == ["1"]


async def test_a_caller_who_vanishes_while_a_room_is_looked_for_blocks_nobody() -> None:
    members = servers(4)
    pool = EnvPool(members)
    members[0].arrivals.clear()
    leaving, staying = (asyncio.ensure_future(pool.allocate(task_ref(), request_id="r")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait((leaving,))
    members[0].arrivals.set()
    assert (await staying).task == task_ref()
    assert (await members[0].status())["leases"] == 1


async def test_a_server_that_was_gone_is_tried_again_after_a_pause_that_grows() -> None:
    clock = Clock()
    near, far = servers(99, 99)
    pool = EnvPool([near, far], backoff=Backoff(first_s=10.0), clock=clock)
    far.is_away = True
    assert await taken(pool, "a", "b", "c") == ["0", "0", "0"]
    assert far.num_asked == 1
    clock.now = 10.0
    assert await taken(pool, "d", "e") == ["0", "0"]
    assert far.num_asked == 2
    clock.now = 29.0
    assert await taken(pool, "f") == ["0"]
    assert far.num_asked == 2, "the second pause is twice the first"
    far.is_away = False
    clock.now = 30.0
    assert await taken(pool, "g", "h") == ["1", "1"]


async def test_one_alone_tries_whether_a_server_is_back() -> None:
    clock = Clock()
    near, far = servers(99, 99)
    pool = EnvPool([far, near], backoff=Backoff(first_s=10.0), clock=clock)
    far.is_away = True
    await taken(pool, "a")
    clock.now, far.is_away = 10.0, False
    far.arrivals.clear()
    trying = asyncio.ensure_future(taken(pool, "b"))
    await asyncio.sleep(0)
    assert await taken(pool, "c", "d") == ["1", "1"]
    far.arrivals.set()
    assert await trying == ["0"]


async def test_where_every_server_is_gone_all_are_asked_and_their_reasons_told() -> None:
    members = servers(9, 9)
    pool = EnvPool(members)
    for member in members:
        member.is_away = True
    for _ in range(2):
        with pytest.raises(EnvGone, match="no environment server answers: it is away; it is away"):
            await pool.allocate(task_ref(), request_id="r")
    with pytest.raises(EnvGone, match="no environment server answers"):
        await pool.tasks("counting", "")
    assert await pool.status() == {"servers": [{"gone": "it is away"}, {"gone": "it is away"}], "leases": 0}
    members[1].is_away = False
    assert await taken(pool, "r") == ["1"], "at once, since there is no other"


async def test_a_full_server_beside_one_that_is_gone_is_waited_for() -> None:
    full, gone = servers(1, 9)
    pool = EnvPool([gone, full])
    gone.is_away = True
    assert await taken(pool, "a") == ["1"]
    with pytest.raises(EnvBusy, match="^all 1 rooms of this server are taken$"):
        await pool.allocate(task_ref(), request_id="b")
    assert gone.num_asked == 1


async def test_calls_go_where_the_room_is() -> None:
    members = servers(1, 1)
    pool = EnvPool(members)
    leases = [await pool.allocate(task_ref(), request_id=name) for name in ("a", "b")]
    for number, lease in enumerate(leases):
        await pool.reset(lease.id, key="1", gateway="g", harness="")
        await pool.step(lease.id, call_of(f"say {number}"), key="2")
        assert await pool.heartbeat(lease.id) == lease
    assert [dict(member.environment.ran) for member in members] == [{"say 0": 1}, {"say 1": 1}]
    for lease in leases:
        await pool.close(lease.id)
    assert (await pool.status())["leases"] == 0
    assert not any(member.environment.open_rooms for member in members)


async def test_a_task_that_is_none_is_not_asked_for_elsewhere() -> None:
    members = servers(1, 1)
    with pytest.raises(TaskError):
        await EnvPool(members).allocate(task_ref(environment="gui"), request_id="a")
    assert [member.num_asked for member in members] == [1, 0]


def test_a_pool_of_none_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="at least one environment server"):
        EnvPool([])

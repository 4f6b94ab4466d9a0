"""A leased room is a room: opened when there is one, kept while it is used, given back when it is closed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from openclaw_rl.envs.leases.leased import LeasedRoom
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, TaskError
from openclaw_rl.protocols import EnvServer, Room
from openclaw_rl.types import Observation, Ran
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment, call_of, task_ref
from tests.unit.envs.leases.conftest import Leasing


def leased(server: EnvServer, request_id: str = "r-1", *, task: str = "count", max_wait_s: float = 600.0) -> LeasedRoom:
    return LeasedRoom(server, task_ref(task), request_id=request_id, gateway="g", harness="tiny", max_wait_s=max_wait_s)


def local(environment: CountingEnvironment, *, ttl_s: float = 60.0) -> LocalEnvServer:
    return LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1, ttl_s=ttl_s)


async def test_an_attempt_sees_a_room_alone(leasing: Leasing) -> None:
    room: Room = leased(leasing.outer)
    try:
        assert (await room.open()).instruction == "count by g with /opt/tiny"
        assert await room.step(call_of("ls")) == Observation(content="ls #1", reward=0.5)
        assert await room.step(call_of("ls")) == Observation(content="ls #2", reward=0.5)
        assert await room.run("ls", timeout_s=3.0, env={"A": "b"}) == Ran(exit_code=0, output="ls #3 3 {'A': 'b'}")
        await room.solve()
        assert (await room.evaluate()).is_solved
    finally:
        await room.close()
        await room.close()
    assert (await leasing.inner.status())["leases"] == 0


async def test_a_room_that_is_opened_again_is_a_fresh_one(leasing: Leasing) -> None:
    room = leased(leasing.outer)
    await room.open()
    await room.solve()
    await room.open()
    assert not (await room.evaluate()).is_solved
    assert [each.is_open for each in leasing.environment.rooms] == [False, True]
    await room.close()


async def test_an_attempt_waits_for_a_free_room() -> None:
    environment = CountingEnvironment()
    async with local(environment) as server:
        first, second = leased(server, "r-1"), leased(server, "r-2")
        await first.open()
        waiting = asyncio.ensure_future(second.open())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await first.close()
        await waiting
        await second.close()
    assert environment.most_open == 1


async def test_an_attempt_does_not_wait_longer_than_it_may() -> None:
    async with local(CountingEnvironment()) as server:
        await leased(server, "r-1").open()
        with pytest.raises(EnvBusy, match="all 1 rooms"):
            await leased(server, "r-2", max_wait_s=0.5).open()


async def test_a_room_in_use_outlives_its_time_and_a_closed_one_beats_no_more() -> None:
    environment = CountingEnvironment()
    async with local(environment, ttl_s=1.2) as server:
        room = leased(server)
        await room.open()
        running = asyncio.ensure_future(room.run("wait", timeout_s=9.0, env={}))
        await asyncio.sleep(2.0)
        environment.gate.set()
        assert (await running).exit_code == 0
        await room.close()
        assert (await server.status())["leases"] == 0
        with pytest.raises(EnvError, match="the room for 'count' is not open"):
            await room.step(call_of("ls"))
        with pytest.raises(EnvGone, match="'r-1' has ended: it was closed"):
            await room.open()


async def test_a_room_that_could_not_be_opened_is_given_back(leasing: Leasing) -> None:
    room = leased(leasing.outer, task="unknown")
    with pytest.raises(TaskError, match="there is no task 'unknown'"):
        await room.open()
    await room.close()
    assert (await leasing.inner.status())["leases"] == 0


async def test_a_room_that_was_never_asked_for_is_closed_without_a_word() -> None:
    async with local(CountingEnvironment()) as server:
        await leased(server).close()


async def test_an_attempt_that_is_cancelled_leaves_nothing(leasing: Leasing) -> None:
    async def attempt() -> None:
        room = leased(leasing.outer)
        try:
            await room.open()
            await room.run("wait", timeout_s=9.0, env={})
        finally:
            await room.close()

    attempting = asyncio.create_task(attempt())
    await leasing.environment.until(lambda: bool(leasing.environment.ran))
    attempting.cancel()
    await asyncio.wait((attempting,))
    assert attempting.cancelled()
    assert not leasing.environment.open_rooms
    assert (await leasing.inner.status())["leases"] == 0


async def test_a_lost_room_is_told_by_its_calls_and_closing_it_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    server = local(CountingEnvironment(), ttl_s=0.3)
    room = leased(server)
    await room.open()
    await server.aclose()
    await asyncio.sleep(0.3)
    with pytest.raises(EnvGone, match="the environment server stopped"):
        await room.step(call_of("ls"))
    await room.close()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert told[0].startswith("a room of counting may be lost: lease")

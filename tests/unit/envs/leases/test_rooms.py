"""What an environment server promises, the same here, over HTTP and in a pool."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress

import pytest

from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, TaskError
from openclaw_rl.protocols import EnvServer
from openclaw_rl.types import Grade, Observation, Ran, RoomLease
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment, call_of, task_ref
from tests.unit.envs.leases.conftest import CAPACITY, Leasing

GATEWAY = "http://127.0.0.1:8700"


async def opened(server: EnvServer, request_id: str = "r-1", task: str = "count", *, key: str = "open") -> RoomLease:
    lease = await server.allocate(task_ref(task), request_id=request_id)
    await server.reset(lease.id, key=key, gateway=GATEWAY, harness="")
    return lease


async def leave(call: asyncio.Task[object]) -> None:
    """The caller vanishes."""
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_room_is_opened_worked_in_graded_and_given_back(leasing: Leasing) -> None:
    server = leasing.outer
    lease = await server.allocate(task_ref(), request_id="r-1")
    assert lease == RoomLease(id=lease.id, task=task_ref(), ttl_s=60.0)
    assert await server.heartbeat(lease.id) == lease
    opening = await server.reset(lease.id, key="1", gateway=GATEWAY, harness="tiny")
    assert opening.instruction == f"count by {GATEWAY} with /opt/tiny"
    assert (opening.tools[0].name, opening.timeout_s) == ("do", 5.0)
    seen = await server.step(lease.id, call_of("größer 日本"), key="2")
    assert seen == Observation(content="größer 日本 #1", reward=0.5)
    ran = await server.exec(lease.id, "ls", key="3", timeout_s=2.5, env={"A": "b"})
    assert ran == Ran(exit_code=0, output="ls #1 2.5 {'A': 'b'}")
    await server.solve(lease.id, key="4")
    assert await server.evaluate(lease.id) == Grade(reward=1.0, share=1.0, metrics={"evaluations": 1.0})
    assert [room.is_open for room in leasing.environment.rooms] == [True]
    await server.close(lease.id)
    assert [room.is_open for room in leasing.environment.rooms] == [False]
    assert (await leasing.inner.status())["leases"] == 0


async def test_tasks_are_listed_and_a_source_that_is_none_is_an_error_of_the_task(leasing: Leasing) -> None:
    tasks = await leasing.outer.tasks("counting", "")
    assert [(task.ref, task.split) for task in tasks] == [
        (task_ref("count"), "train"),
        (task_ref("sort"), "train"),
        (task_ref("find"), "held_out"),
    ]
    with pytest.raises(TaskError, match="there are no tasks '/tmp/mine'"):
        await leasing.outer.tasks("counting", "/tmp/mine")
    with pytest.raises(TaskError, match="no environment 'gui' on this server; it has counting"):
        await leasing.outer.tasks("gui", "")


async def test_a_request_that_is_sent_again_gets_the_same_room(leasing: Leasing) -> None:
    first, second = await asyncio.gather(
        leasing.outer.allocate(task_ref(), request_id="r-1"), leasing.outer.allocate(task_ref(), request_id="r-1")
    )
    assert first == second == await leasing.outer.allocate(task_ref(), request_id="r-1")
    assert (await leasing.inner.status())["leases"] == 1
    with pytest.raises(EnvError, match="request 'r-1' has a room for another task"):
        await leasing.outer.allocate(task_ref("sort"), request_id="r-1")
    await leasing.outer.close(first.id)
    with pytest.raises(EnvGone, match="the lease of request 'r-1' has ended: it was closed"):
        await leasing.outer.allocate(task_ref(), request_id="r-1")


@pytest.mark.parametrize("kind", ["exec", "step"])
async def test_a_command_that_is_sent_again_runs_once(leasing: Leasing, kind: str) -> None:
    environment = leasing.environment
    lease = await opened(leasing.outer)

    async def ask() -> object:
        if kind == "exec":
            return await leasing.outer.exec(lease.id, "wait", key="k", timeout_s=9.0, env={})
        return await leasing.outer.step(lease.id, call_of("wait"), key="k")

    vanishing = asyncio.ensure_future(ask())
    await environment.until(lambda: environment.ran["wait"] == 1)
    await leave(vanishing)
    again = [asyncio.ensure_future(ask()) for _ in range(2)]
    await asyncio.sleep(0.05)
    environment.gate.set()
    first, second = await asyncio.gather(*again)
    assert first == second == await ask()
    assert environment.ran["wait"] == 1


async def test_a_key_is_good_for_one_call(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    await leasing.outer.exec(lease.id, "ls", key="k", timeout_s=1.0, env={})
    with pytest.raises(EnvError, match="key 'k' was used for another call"):
        await leasing.outer.exec(lease.id, "rm notes.txt", key="k", timeout_s=1.0, env={})
    with pytest.raises(EnvError, match="key 'k' was used for another call"):
        await leasing.outer.exec(lease.id, "ls", key="k", timeout_s=1.0, env={"LC_ALL": "C"})
    assert await leasing.outer.exec(lease.id, "ls", key="k2", timeout_s=1.0, env={}) == Ran(
        exit_code=0, output="ls #2 1 {}"
    )


async def test_an_answer_that_is_not_kept_any_more_is_refused_and_nothing_runs_twice(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    for number in range(12):
        await leasing.outer.step(lease.id, call_of(f"say {number}"), key=f"k{number}")
    assert await leasing.outer.step(lease.id, call_of("say 11"), key="k11") == Observation(
        content="say 11 #1", reward=0.5
    )
    with pytest.raises(EnvError, match="the call with key 'k0' has run, but its answer is not kept"):
        await leasing.outer.step(lease.id, call_of("say 0"), key="k0")
    assert leasing.environment.ran["say 0"] == 1


async def test_calls_of_one_lease_run_one_after_another(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    first = asyncio.ensure_future(leasing.outer.step(lease.id, call_of("wait"), key="a"))
    await leasing.environment.until(lambda: leasing.environment.ran["wait"] == 1)
    others = [asyncio.ensure_future(leasing.outer.step(lease.id, call_of(f"say {n}"), key=f"b{n}")) for n in range(3)]
    await asyncio.sleep(0.05)
    assert leasing.environment.rooms[0].scripts == ["wait"]
    leasing.environment.gate.set()
    await asyncio.gather(first, *others)
    assert sorted(leasing.environment.rooms[0].scripts) == ["say 0", "say 1", "say 2", "wait"]


async def test_calls_that_wait_for_one_lease_are_limited(leasing: Leasing) -> None:
    lease = await opened(leasing.inner)
    waiting = [
        asyncio.ensure_future(leasing.inner.step(lease.id, call_of("wait"), key=f"k{number}")) for number in range(16)
    ]
    await leasing.environment.until(lambda: leasing.environment.ran["wait"] == 1)
    with pytest.raises(EnvBusy, match="16 calls of lease .* are under way"):
        await leasing.inner.step(lease.id, call_of("wait"), key="one too many")
    again = asyncio.ensure_future(leasing.inner.step(lease.id, call_of("wait"), key="k0"))
    await asyncio.sleep(0)
    leasing.environment.gate.set()
    assert await again == (await asyncio.gather(*waiting))[0]


async def test_a_lease_serves_many_calls_and_not_endlessly_many() -> None:
    environment = CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1) as server:
        lease = await opened(server)
        for number in range(4096):
            await server.step(lease.id, call_of("ls"), key=str(number))
        with pytest.raises(EnvError, match="a lease serves at most 4096 calls of a kind; take another one"):
            await server.step(lease.id, call_of("ls"), key="one more")
        await server.evaluate(lease.id)


async def test_a_full_server_says_so_and_when_to_ask_again(leasing: Leasing) -> None:
    held = [await leasing.outer.allocate(task_ref(), request_id=f"r-{number}") for number in range(6)]
    with pytest.raises(EnvBusy, match="all 6 rooms that this server has for 'count' are taken") as busy:
        await leasing.outer.allocate(task_ref(), request_id="one more")
    assert busy.value.retry_after_s == 1.0
    held += [await leasing.outer.allocate(task_ref("sort"), request_id=f"s-{number}") for number in range(2)]
    with pytest.raises(EnvBusy, match=f"all {CAPACITY} rooms of this server are taken"):
        await leasing.outer.allocate(task_ref("find"), request_id="one more")
    await leasing.outer.close(held[0].id)
    await leasing.outer.allocate(task_ref("find"), request_id="one more")


async def test_a_reset_gives_a_fresh_room_and_the_grade_belongs_to_it(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    assert await leasing.outer.evaluate(lease.id) == await leasing.outer.evaluate(lease.id)
    assert leasing.environment.rooms[0].num_evaluations == 1
    await leasing.outer.reset(lease.id, key="again", gateway=GATEWAY, harness="")
    await leasing.outer.reset(lease.id, key="again", gateway=GATEWAY, harness="")
    first, second = leasing.environment.rooms
    assert (first.is_open, second.is_open) == (False, True)
    await leasing.outer.solve(lease.id, key="solve")
    assert (await leasing.outer.evaluate(lease.id)).is_solved
    assert (first.num_evaluations, second.num_evaluations) == (1, 1)
    assert leasing.environment.most_open == 1, "one room was closed before the other was opened"


async def test_a_room_that_fails_is_closed_and_the_lease_says_why(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    with pytest.raises(EnvError, match="^the box died$"):
        await leasing.outer.exec(lease.id, "fail the box died", key="k", timeout_s=1.0, env={})
    assert not leasing.environment.open_rooms
    with pytest.raises(EnvError, match="^the box died$"):
        await leasing.outer.exec(lease.id, "fail the box died", key="k", timeout_s=1.0, env={})
    with pytest.raises(EnvError, match="has no room: the box died; a reset opens one"):
        await leasing.outer.evaluate(lease.id)
    await leasing.outer.reset(lease.id, key="again", gateway=GATEWAY, harness="")
    assert len(leasing.environment.open_rooms) == 1
    assert (await leasing.outer.evaluate(lease.id)).failure == ""


async def test_a_room_is_worked_in_after_it_was_opened(leasing: Leasing) -> None:
    lease = await leasing.outer.allocate(task_ref(), request_id="r-1")
    with pytest.raises(EnvError, match="has no room: it is not open; a reset opens one"):
        await leasing.outer.step(lease.id, call_of("ls"), key="k")


async def test_a_task_that_cannot_be_attempted_is_no_failure_of_the_environment(leasing: Leasing) -> None:
    with pytest.raises(TaskError, match="no environment 'gui'"):
        await leasing.outer.allocate(task_ref(environment="gui"), request_id="r-0")
    lease = await leasing.outer.allocate(task_ref("unknown"), request_id="r-1")
    with pytest.raises(TaskError, match="there is no task 'unknown'"):
        await leasing.outer.reset(lease.id, key="k", gateway=GATEWAY, harness="")
    unsolved = await opened(leasing.outer, "r-2", "sort")
    with pytest.raises(TaskError, match="sort has no solution"):
        await leasing.outer.solve(unsolved.id, key="k")


async def test_a_harness_that_is_not_installed_says_what_to_do(leasing: Leasing) -> None:
    lease = await leasing.outer.allocate(task_ref(), request_id="r-1")
    with pytest.raises(EnvError, match="^huge is not installed; run make harness$"):
        await leasing.outer.reset(lease.id, key="k", gateway=GATEWAY, harness="huge")


async def test_what_has_ended_stays_so(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    await leasing.outer.close(lease.id)
    await leasing.outer.close(lease.id)
    with pytest.raises(EnvGone, match="has ended: it was closed"):
        await leasing.outer.heartbeat(lease.id)
    with pytest.raises(EnvGone, match="has ended: it was closed"):
        await leasing.outer.step(lease.id, call_of("ls"), key="k")
    assert not leasing.environment.ran


async def test_a_lease_of_nobody_is_gone(leasing: Leasing) -> None:
    for lease in ("0123", "1.0123", "7.0123", "../status"):
        with pytest.raises(EnvGone):
            await leasing.outer.heartbeat(lease)
    with pytest.raises(EnvGone, match="this server does not know it"):
        await leasing.inner.evaluate("0123")


async def test_closing_ends_what_runs_and_its_caller_hears_of_it(leasing: Leasing) -> None:
    lease = await opened(leasing.outer)
    running = asyncio.ensure_future(leasing.outer.exec(lease.id, "wait", key="k", timeout_s=99.0, env={}))
    queued = asyncio.ensure_future(leasing.outer.exec(lease.id, "ls", key="k2", timeout_s=99.0, env={}))
    await leasing.environment.until(lambda: leasing.environment.ran["wait"] == 1)
    await leasing.outer.close(lease.id)
    for call in (running, queued):
        with pytest.raises(EnvGone, match="has ended: it was closed"):
            await call
    assert not leasing.environment.open_rooms
    assert not leasing.environment.ran["ls"]


async def test_many_episodes_at_once_leave_the_loop_free(leasing: Leasing) -> None:
    """With 64 commands under way, others are answered."""
    environment = CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=64) as server:
        leases = [await opened(server, f"r-{number}") for number in range(64)]
        waiting = [
            asyncio.ensure_future(server.exec(each.id, "wait", key="k", timeout_s=99.0, env={})) for each in leases
        ]
        await environment.until(lambda: environment.ran["wait"] == 64)
        assert [(await server.heartbeat(each.id)).id for each in leases] == [each.id for each in leases]
        with pytest.raises(EnvBusy):
            await server.allocate(task_ref(), request_id="one more")
        environment.gate.set()
        assert len({(await each).output for each in waiting}) == 1
    assert environment.most_open == 64
    assert not environment.open_rooms


# Time and endings, which are the same for everybody who asks.


@pytest.mark.parametrize("order", [("silent", "beating"), ("beating", "silent")])
async def test_a_lease_without_heartbeats_ends(order: tuple[str, str]) -> None:
    clock, environment = Clock(), CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=2, clock=clock) as server:
        leases = {name: await opened(server, name) for name in order}
        silent, beating = leases["silent"], leases["beating"]
        clock.now += 59.0
        await server.heartbeat(beating.id)
        clock.now += 1.0
        with pytest.raises(EnvGone, match="has ended: it had no heartbeat for 60 s"):
            await server.step(silent.id, call_of("ls"), key="k")
        await environment.until(lambda: len(environment.open_rooms) == 1)
        await server.step(beating.id, call_of("ls"), key="k")  # which is a sign of life as well
        clock.now += 59.0
        await server.heartbeat(beating.id)
        with pytest.raises(EnvGone, match="the lease of request 'silent' has ended: it had no heartbeat"):
            await server.allocate(task_ref(), request_id="silent")
        clock.now += 60.0
        with pytest.raises(EnvGone, match="the lease of request 'beating' has ended: it had no heartbeat"):
            await server.allocate(task_ref(), request_id="beating")


async def test_the_end_of_a_lease_comes_without_anybody_asking() -> None:
    environment = CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=2, ttl_s=0.5) as server:
        for number in range(2):  # also after there was none for a while
            lease = await opened(server, f"r-{number}")
            running = asyncio.ensure_future(server.exec(lease.id, "wait", key="k", timeout_s=99.0, env={}))
            with pytest.raises(EnvGone, match="no heartbeat for 0.5 s"):
                await running
            await environment.until(lambda: not environment.open_rooms)
            assert (await server.status())["leases"] == 0


async def test_a_room_that_is_being_closed_takes_its_place_until_it_is() -> None:
    environment = CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1) as server:
        lease = await opened(server)
        closing = asyncio.ensure_future(server.close(lease.id))
        await asyncio.sleep(0)
        with pytest.raises(EnvBusy):
            await server.allocate(task_ref(), request_id="next")
        assert (await server.status())["closing"] == 1
        await closing
        await opened(server, "next")
    assert environment.most_open == 1


async def test_a_caller_who_vanishes_while_a_room_opens_leaves_none_half_open() -> None:
    for num_ticks in range(12):
        environment = CountingEnvironment()
        async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1) as server:
            lease = await server.allocate(task_ref(), request_id="r")
            opening = asyncio.ensure_future(server.reset(lease.id, key="k", gateway=GATEWAY, harness="tiny"))
            for _ in range(num_ticks):
                await asyncio.sleep(0)
            await leave(opening)
            await asyncio.gather(server.close(lease.id), server.close(lease.id))
            assert not environment.open_rooms
            assert all(room.num_closes == 1 for room in environment.rooms)
            await server.allocate(task_ref(), request_id="next")


async def test_a_server_that_stops_closes_every_room_and_leases_none() -> None:
    environment = CountingEnvironment()
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=4)
    leases = [await opened(server, f"r-{number}") for number in range(4)]
    running = asyncio.ensure_future(server.step(leases[0].id, call_of("wait"), key="k"))
    await environment.until(lambda: environment.ran["wait"] == 1)
    await asyncio.gather(server.aclose(), server.aclose())
    assert not environment.open_rooms
    with pytest.raises(EnvGone, match="the environment server stopped"):
        await running
    with pytest.raises(EnvGone, match="stopping"):
        await server.allocate(task_ref(), request_id="late")
    assert len(asyncio.all_tasks()) == 1, "nothing is left but this test"


async def test_a_room_that_does_not_answer_in_time_is_given_up() -> None:
    environment = CountingEnvironment()
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1, max_call_s=0.02)
    async with server:
        lease = await opened(server)
        with pytest.raises(EnvError, match="the room did not answer within 0.02 s"):
            await server.step(lease.id, call_of("wait"), key="k")
        assert not environment.open_rooms


async def test_a_defect_reaches_the_caller_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    environment = CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1) as server:
        lease = await opened(server)
        with pytest.raises(ZeroDivisionError):
            await server.step(lease.id, call_of("defect"), key="k")
        with pytest.raises(EnvError, match="cancelled its own call"):
            await server.step(lease.id, call_of("cancel"), key="k2")
        await server.step(lease.id, call_of("ls"), key="k3")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "unexpected error in a room of counting"
    ]


async def test_the_status_tells_who_has_rooms() -> None:
    environment = CountingEnvironment()
    async with LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=3) as server:
        lease = await opened(server)
        failed = await opened(server, "r-2", "sort")
        with pytest.raises(EnvError):
            await server.step(failed.id, call_of("fail no memory"), key="k")
        status = dict(await server.status())
        assert status.pop("rooms") == [
            {"lease": lease.id, "environment": "counting", "source": "", "name": "count", "calls": 0, "room": "open"},
            {
                "lease": failed.id,
                "environment": "counting",
                "source": "",
                "name": "sort",
                "calls": 0,
                "room": "no memory",
            },
        ]
        assert status == {
            "environments": ["counting"],
            "capacity": 3,
            "capacity_per_task": 3,
            "ttl_s": 60.0,
            "leases": 2,
            "closing": 0,
        }
        assert math.isclose(lease.ttl_s, status["ttl_s"])

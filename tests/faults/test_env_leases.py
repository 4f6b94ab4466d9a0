"""kill -9 of an environment server, and of those who lease from it: nobody hangs, nothing runs twice, no room stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.leases.client import RemoteEnvServer
from openclaw_rl.envs.leases.leased import LeasedRoom
from openclaw_rl.envs.leases.pool import EnvPool
from openclaw_rl.errors import EnvBusy, EnvGone
from openclaw_rl.protocols import EnvServer
from tests.fakes.environments import task_ref

ROOT = Path(__file__).parents[2]
SOON = Backoff(first_s=0.05, longest_s=0.2)
PATIENCE_S = 30.0


class ServerProcess:
    """A server in a process of its own, which can be started again at the same address."""

    def __init__(self, marks: Path, *, ttl_s: float = 60.0) -> None:
        self.marks = marks
        self.ttl_s = ttl_s
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        marks.mkdir(exist_ok=True)

    def start(self) -> ServerProcess:
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "tests.faults.env_server_child", str(self.marks), port, str(self.ttl_s)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), "the server did not start"
        return self

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def client(self, *, silence_s: float = 10.0) -> RemoteEnvServer:
        return RemoteEnvServer(self.url, "key", retries=2, backoff=SOON, silence_s=silence_s)

    @property
    def open_rooms(self) -> list[str]:
        """As their files say; those of a server that was killed are still there."""
        return sorted(path.name for path in self.marks.glob("room-*"))

    @property
    def ran(self) -> list[str]:
        log = self.marks / "ran"
        return log.read_text().splitlines() if log.exists() else []

    def release(self) -> None:
        """Commands that hold go on."""
        (self.marks / "release").touch()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    found: list[ServerProcess] = []
    with ExitStack() as stack:
        for number in range(2):
            found.append(ServerProcess(tmp_path / f"server-{number}").start())
            stack.callback(_kill, found[-1])
        yield found


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "impatient", ttl_s=1.5).start()
    yield server
    _kill(server)


@pytest.fixture
def attempts(impatient: ServerProcess) -> Iterator[subprocess.Popen[str]]:
    """Twenty of them in a process of their own, at work."""
    command = [sys.executable, "-m", "tests.faults.env_client_child", impatient.url, "20"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        yield process
        process.kill()


def _kill(server: ServerProcess) -> None:
    if server.process is not None and server.process.poll() is None:
        server.process.send_signal(signal.SIGCONT)
        server.end(signal.SIGKILL)


def leased(server: EnvServer, request_id: str) -> LeasedRoom:
    return LeasedRoom(server, task_ref(), request_id=request_id, gateway="g", harness="")


async def runs(server: ServerProcess, script: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while script not in server.ran:  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0.01)


async def empty(server: ServerProcess, client: RemoteEnvServer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while server.open_rooms or (await client.status())["leases"]:  # noqa: ASYNC110  likewise
            await asyncio.sleep(0.05)


async def test_a_server_that_is_killed_in_mid_episode_is_gone_and_its_successor_knows_nothing(
    servers: list[ServerProcess],
) -> None:
    server = servers[0]
    async with server.client() as client, asyncio.timeout(PATIENCE_S):
        room, lease = leased(client, "r-1"), await client.allocate(task_ref(), request_id="r-2")
        await room.open()
        running = asyncio.ensure_future(room.run("sleep 60", timeout_s=90.0, env={}))
        await runs(server, "sleep 60")
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        with pytest.raises(EnvGone, match="does not answer"):
            await running
        with pytest.raises(EnvGone):
            await leased(client, "r-3").open()
        server.start()
        with pytest.raises(EnvGone, match="does not know it; it may have been started anew"):
            await client.heartbeat(lease.id)
        await room.close()
        after = leased(client, "r-4")
        await after.open()
        assert (await after.run("ls", timeout_s=1.0, env={})).exit_code == 0
        await after.close()
    assert server.ran == ["sleep 60", "ls"]


async def test_a_pool_goes_on_with_the_others_and_takes_a_server_back(servers: list[ServerProcess]) -> None:
    first, second = servers
    async with first.client() as near, second.client() as far, asyncio.timeout(PATIENCE_S):
        pool = EnvPool([near, far], backoff=SOON)
        rooms = [leased(pool, f"r-{number}") for number in range(4)]
        await asyncio.gather(*(room.open() for room in rooms))
        running = [asyncio.ensure_future(room.run("hold", timeout_s=90.0, env={})) for room in rooms]
        await asyncio.gather(runs(first, "hold"), runs(second, "hold"))
        first.end(signal.SIGKILL)
        second.release()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert sorted(type(each).__name__ for each in ended) == ["EnvGone", "EnvGone", "Ran", "Ran"]
        others = [leased(pool, f"s-{number}") for number in range(4)]
        await asyncio.gather(*(room.open() for room in others))
        assert (await far.status())["leases"] == 6
        first.start()
        while "first" not in first.ran:
            back = leased(pool, f"t-{time.monotonic()}")
            others.append(back)
            await back.open()
            await back.run("first", timeout_s=1.0, env={})
        for room in (*rooms, *others):
            await room.close()
        await asyncio.gather(empty(second, far))
        assert (await near.status())["leases"] == 0


async def test_attempts_that_are_killed_leave_their_rooms_to_the_server(
    impatient: ServerProcess, attempts: subprocess.Popen[str]
) -> None:
    async with impatient.client() as client, asyncio.timeout(PATIENCE_S):
        await asyncio.sleep(2.0 * impatient.ttl_s)
        assert len(impatient.open_rooms) == 20, "rooms in use outlive their time"
        attempts.send_signal(signal.SIGKILL)
        await empty(impatient, client)
        assert impatient.ran == ["sleep 60"] * 20
        with pytest.raises(EnvGone, match="no heartbeat for 1.5 s"):
            await client.allocate(task_ref(), request_id="killed-0")


async def test_a_command_outlives_the_client_that_asked_for_it_and_runs_once(servers: list[ServerProcess]) -> None:
    server = servers[0]
    async with server.client() as other, asyncio.timeout(PATIENCE_S):
        async with server.client() as client:
            lease = await client.allocate(task_ref(), request_id="r-1")
            await client.reset(lease.id, key="1", gateway="g", harness="")
            asking = asyncio.ensure_future(client.exec(lease.id, "hold", key="2", timeout_s=9.0, env={}))
            await runs(server, "hold")
            asking.cancel()
            await asyncio.wait((asking,))
        server.release()
        ran = await other.exec(lease.id, "hold", key="2", timeout_s=9.0, env={})
        assert ran.output.startswith("hold #1")
        await other.close(lease.id)
    assert server.ran == ["hold"]


async def test_a_server_that_is_told_to_stop_closes_every_room_and_says_so(servers: list[ServerProcess]) -> None:
    server = servers[0]
    async with server.client() as client, asyncio.timeout(PATIENCE_S):
        rooms = [leased(client, f"r-{number}") for number in range(8)]
        await asyncio.gather(*(room.open() for room in rooms))
        running = [asyncio.ensure_future(room.run("sleep 60", timeout_s=90.0, env={})) for room in rooms]
        await runs(server, "sleep 60")
        assert len(server.open_rooms) == 8
        assert server.end(signal.SIGTERM) == 0
        for each in await asyncio.gather(*running, return_exceptions=True):
            assert isinstance(each, EnvGone)
            assert "the environment server stopped" in str(each)
        assert server.open_rooms == []
        for room in rooms:
            await room.close()


async def test_a_server_that_is_silent_is_gone_after_a_while(servers: list[ServerProcess]) -> None:
    server = servers[0]
    async with server.client(silence_s=0.5) as client, asyncio.timeout(PATIENCE_S):
        await client.status()
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        with pytest.raises(EnvGone, match="does not answer: it is silent, 3 times"):
            await client.status()


async def test_as_many_episodes_as_there_are_rooms_leave_the_server_free_to_answer(
    servers: list[ServerProcess],
) -> None:
    server = servers[0]

    async def attempt(client: RemoteEnvServer, number: int) -> None:
        room = leased(client, f"r-{number}")
        try:
            await room.open()
            await room.run("hold", timeout_s=9.0, env={})
            await room.run("ls", timeout_s=9.0, env={})
            assert (await room.evaluate()).failure == ""
        finally:
            await room.close()

    async with server.client() as client, asyncio.timeout(PATIENCE_S):
        attempts = [asyncio.ensure_future(attempt(client, number)) for number in range(64)]
        while server.ran.count("hold") < 64:  # noqa: ASYNC110  it happens in another process
            await asyncio.sleep(0.01)
        assert "ls" not in server.ran, "all of them are at work at once"
        assert (await client.status())["leases"] == 64
        with pytest.raises(EnvBusy, match="all 64 rooms of this server are taken"):
            await client.allocate(task_ref(), request_id="one more")
        server.release()
        await asyncio.gather(*attempts)
        await empty(server, client)
    assert server.ran.count("ls") == 64

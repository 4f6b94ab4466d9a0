"""A client of an environment server, over connections that break and to servers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from openclaw_rl.envs.leases.client import RemoteEnvServer
from openclaw_rl.envs.leases.http import serve_envs
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import ConfigError, EnvError, EnvGone
from openclaw_rl.types import Ran
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment, task_ref
from tests.unit.envs.leases.conftest import AT_ONCE, free_port

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BadLine:
    """A TCP line to a server that hands on what a client says, and cuts the connection before the first `num_cuts`
    answers reach it."""

    def __init__(self, port: int, num_cuts: int) -> None:
        self.port = port
        self.cuts_left = num_cuts
        self.num_requests = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            while said := await reader.read(1 << 16):
                self.num_requests += 1
                far_writer.write(said)
                answer = await far_reader.read(1 << 16)
                if self.cuts_left:
                    self.cuts_left -= 1
                    return
                writer.write(answer)
        finally:
            for each in (writer, far_writer):
                each.close()
                await each.wait_closed()


@asynccontextmanager
async def over_a_bad_line(
    environment: CountingEnvironment, num_cuts: int
) -> AsyncIterator[tuple[RemoteEnvServer, BadLine]]:
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=4)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_envs(server))
        line = BadLine(int(url.rpartition(":")[2]), num_cuts)
        listener = await asyncio.start_server(line.carry, "127.0.0.1", 0)
        stack.push_async_callback(listener.wait_closed)
        stack.callback(listener.close)
        near = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        yield await stack.enter_async_context(RemoteEnvServer(near, retries=3, backoff=AT_ONCE)), line


@asynccontextmanager
async def answering(answer: Answering) -> AsyncIterator[RemoteEnvServer]:
    """A client of a server that says the same to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with RemoteEnvServer(f"http://127.0.0.1:{runner.addresses[0][1]}", retries=2, backoff=AT_ONCE) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_a_command_whose_answer_is_lost_is_asked_for_again_and_runs_once() -> None:
    environment = CountingEnvironment()
    async with over_a_bad_line(environment, 0) as (client, line):
        lease = await client.allocate(task_ref(), request_id="r-1")
        await client.reset(lease.id, key="1", gateway="g", harness="")
        line.cuts_left = 3
        line.num_requests = 0
        assert await client.exec(lease.id, "append", key="2", timeout_s=9.0, env={}) == Ran(
            exit_code=0, output="append #1 9 {}"
        )
        assert (line.num_requests, environment.ran["append"]) == (4, 1)


async def test_every_call_may_lose_its_answer() -> None:
    environment = CountingEnvironment()
    async with over_a_bad_line(environment, 0) as (client, line):
        line.cuts_left = 2
        lease = await client.allocate(task_ref(), request_id="r-1")
        for call in (
            lambda: client.reset(lease.id, key="1", gateway="g", harness=""),
            lambda: client.solve(lease.id, key="2"),
            lambda: client.evaluate(lease.id),
            lambda: client.heartbeat(lease.id),
            lambda: client.close(lease.id),
        ):
            line.cuts_left = 2
            await call()
    (room,) = environment.rooms
    assert (room.num_evaluations, room.num_closes) == (1, 1)


async def test_a_line_that_stays_broken_means_that_the_server_is_gone() -> None:
    environment = CountingEnvironment()
    async with over_a_bad_line(environment, 99) as (client, line):
        with pytest.raises(EnvGone, match=r"does not answer: .*, 4 times"):
            await client.allocate(task_ref(), request_id="r-1")
        assert line.num_requests == 4


async def test_where_nobody_listens_the_server_is_gone() -> None:
    async with RemoteEnvServer(f"http://127.0.0.1:{free_port()}/", retries=1, backoff=AT_ONCE) as client:
        with pytest.raises(EnvGone, match="does not answer"):
            await client.status()


async def test_a_gateway_between_that_finds_no_server_is_asked_again() -> None:
    num_asked = 0

    async def away(_: web.Request) -> web.Response:
        nonlocal num_asked
        num_asked += 1
        return web.Response(status=502, text="<html>bad gateway</html>")

    async with answering(away) as client:
        with pytest.raises(EnvGone, match="HTTP 502, 3 times"):
            await client.heartbeat("0123")
    assert num_asked == 3


@pytest.mark.parametrize(
    ("status", "text", "error", "told"),
    [
        (401, "{}", ConfigError, "is the key of that server configured"),
        (403, "{}", ConfigError, "is the key of that server configured"),
        (404, "<html>not here</html>", ConfigError, "does not answer as an environment server does"),
        (301, "", ConfigError, "does not answer as an environment server does"),
        (200, '{"value": {"id": 7}}', ConfigError, "does not answer as an environment server does"),
        (200, "hello", ConfigError, "does not answer as an environment server does"),
        (500, "oops", EnvError, "something went wrong at"),
        (400, '{"kind": "request", "message": "no such field"}', EnvError, "^no such field$"),
        (424, '{"kind": "env", "message": "no memory"}', EnvError, "^no memory$"),
    ],
)
async def test_an_answer_that_is_none_is_not_asked_for_again(
    status: int, text: str, error: type[Exception], told: str
) -> None:
    num_asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal num_asked
        num_asked += 1
        return web.Response(status=status, text=text, headers={"Location": "http://192.0.2.1/"})

    async with answering(answer) as client:
        with pytest.raises(error, match=told):
            await client.allocate(task_ref(), request_id="r-1")
    assert num_asked == 1


@pytest.mark.parametrize(("url", "key"), [("box:8000", None), ("ftp://box", None), ("http://box", "two\nlines")])
def test_an_address_or_a_key_that_is_none_is_refused(url: str, key: str | None) -> None:
    with pytest.raises(ConfigError):
        RemoteEnvServer(url, key)


async def test_a_key_opens_the_server() -> None:
    server = LocalEnvServer({}, lambda _: NO_PROGRAMS, capacity=3)
    async with serve_envs(server, key="right") as url:
        async with RemoteEnvServer(url, "right") as client:
            assert (await client.status())["capacity"] == 3
        async with RemoteEnvServer(url, "wrong") as client:
            with pytest.raises(ConfigError, match="does not let us in"):
                await client.status()


async def test_a_call_may_be_large_but_not_endless() -> None:
    environment = CountingEnvironment()
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1)
    async with serve_envs(server) as url, RemoteEnvServer(url) as client:
        lease = await client.allocate(task_ref(), request_id="r-1")
        await client.reset(lease.id, key="1", gateway="g", harness="")
        large = "x" * 3_000_000
        assert large in (await client.exec(lease.id, large, key="2", timeout_s=9.0, env={})).output
        with pytest.raises(EnvError, match="environment servers read less than 4194304"):
            await client.exec(lease.id, "x" * 5_000_000, key="3", timeout_s=9.0, env={})

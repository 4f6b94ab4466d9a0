"""The environment server over plain HTTP: who is let in, what is refused and how, and what a lost connection costs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio

from openclaw_rl.envs.leases.http import serve_envs
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import ConfigError
from tests.fakes.environments import NO_PROGRAMS, CountingEnvironment

KEY = "a-key-of-tests"
NOTHING: dict[str, object] = {}
COUNT = {"environment": "counting", "source": "", "name": "count"}


class Wire:
    """A server, and requests to it as anybody could send them."""

    def __init__(self, environment: CountingEnvironment, http: aiohttp.ClientSession, url: str) -> None:
        self.environment = environment
        self.http = http
        self.url = url
        self.headers = {"Authorization": f"Bearer {KEY}"}

    async def post(self, path: str, body: object = NOTHING, **headers: str) -> tuple[int, dict[str, Any]]:
        data = BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))
        request = self.http.post(self.url + path, data=data, headers={**self.headers, **headers})
        async with request as response:
            assert response.headers["Server"] == "openclaw-rl"
            return response.status, await response.json()

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
        async with self.http.get(self.url + path, headers={**self.headers, **headers}) as response:
            return response.status, await response.json()

    async def opened(self) -> str:
        _, answer = await self.post("/allocate", {"task": COUNT, "request_id": "r-1"})
        lease = str(answer["value"]["id"])
        status, _ = await self.post(f"/leases/{lease}/reset", {"key": "open", "gateway": "g", "harness": ""})
        assert status == 200
        return f"/leases/{lease}"


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    environment = CountingEnvironment()
    async with AsyncExitStack() as stack:
        server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1)
        url = await stack.enter_async_context(serve_envs(server, key=KEY, hold_s=0.1))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Wire(environment, http, url)
    assert not environment.open_rooms


def command(script: str, **fields: object) -> dict[str, object]:
    return {"key": "k", "command": script, "timeout_s": 9.0, "env": {}, **fields}


async def test_everything_but_health_needs_the_key(wire: Wire) -> None:
    assert await wire.get("/healthz", Authorization="") == (200, {})
    for shown in ("", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x"):
        status, refusal = await wire.get("/status", Authorization=shown)
        assert (status, refusal["kind"]) == (401, "request")
        status, _ = await wire.post("/allocate", {"task": COUNT, "request_id": "r-1"}, Authorization=shown)
        assert status == 401
    assert (await wire.get("/status", Authorization=f"bearer {KEY}"))[0] == 200


async def test_web_pages_are_not_served(wire: Wire) -> None:
    status, refusal = await wire.post("/allocate", {"task": COUNT, "request_id": "r-1"}, Origin="http://127.0.0.1")
    assert (status, refusal["message"]) == (403, "web pages, and names of other machines, are not served here")


async def test_without_a_key_a_name_of_another_machine_is_not_served() -> None:
    server = LocalEnvServer({}, lambda _: NO_PROGRAMS, capacity=1)
    async with serve_envs(server) as url, aiohttp.ClientSession() as http:
        for host, expected in (("rebound.example:80", 403), ("[", 403), ("localhost:1", 200), ("127.0.0.1", 200)):
            async with http.get(f"{url}/status", headers={"Host": host}) as response:
                assert response.status == expected, host


@pytest.mark.parametrize(
    ("host", "key"), [("0.0.0.0", None), ("192.0.2.7", None), ("example.org", None), ("127.0.0.1", "two\nlines")]
)
async def test_a_server_that_would_be_open_to_strangers_does_not_start(host: str, key: str | None) -> None:
    server = LocalEnvServer({}, lambda _: NO_PROGRAMS, capacity=1)
    with pytest.raises(ConfigError, match="give the server a key, or bind to 127.0.0.1|not plain text"):
        async with serve_envs(server, host=host, key=key):
            pytest.fail("it was served")


async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    server = LocalEnvServer({}, lambda _: NO_PROGRAMS, capacity=1)
    async with serve_envs(server) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: "):
            async with serve_envs(server, port=port):
                pytest.fail("it was served")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "Invalid JSON"),
        (b"", "task: Field required"),
        (b"\xff\xfe", "Invalid JSON"),
        ({"task": COUNT, "request_id": 7}, "request_id: Input should be a valid string"),
        ({"task": COUNT, "request_id": ""}, "request_id: String should have at least 1 character"),
        ({"task": COUNT, "request_id": "r" * 201}, "request_id: String should have at most 200 characters"),
        ({"task": {**COUNT, "name": ""}, "request_id": "r"}, "a task has an environment and a name"),
        ({"task": {**COUNT, "nme\r\n": "x"}, "request_id": "r"}, "Unexpected keyword argument"),
        ({"task": COUNT, "request_id": "r", "retries": 3}, "retries: Extra inputs are not permitted"),
        ([], "Input should be an object"),
    ],
)
async def test_a_malformed_body_is_refused_with_its_fault(wire: Wire, body: object, told: str) -> None:
    status, refusal = await wire.post("/allocate", body)
    assert (status, refusal["kind"]) == (400, "request")
    assert told in refusal["message"]
    assert (await wire.get("/status"))[1]["value"]["leases"] == 0


@pytest.mark.parametrize(
    "fields",
    [{"timeout_s": 0}, {"timeout_s": 1e9}, {"timeout_s": "5"}, {"env": {"A": 1}}, {"key": ""}, {"command": None}],
)
async def test_a_command_out_of_bounds_is_refused(wire: Wire, fields: dict[str, object]) -> None:
    room = await wire.opened()
    assert (await wire.post(f"{room}/exec", command("ls", **fields)))[0] == 400
    assert (await wire.post(f"{room}/exec", b'{"key": "k", "command": "ls", "timeout_s": NaN, "env": {}}'))[0] == 400
    assert not wire.environment.ran


async def test_a_body_has_a_largest_size(wire: Wire) -> None:
    room = await wire.opened()
    status, refusal = await wire.post(f"{room}/exec", command("x" * 5_000_000))
    assert (status, refusal["kind"]) == (413, "request")
    assert (await wire.post(f"{room}/exec", command("x" * 3_000_000)))[0] == 200


async def test_what_is_not_there_is_told_in_json(wire: Wire) -> None:
    assert await wire.get("/nowhere") == (404, {"kind": "request", "message": "Not Found", "retry_after_s": None})
    assert (await wire.get("/allocate"))[0] == 405


async def test_errors_have_their_status(wire: Wire) -> None:
    room = await wire.opened()
    async with wire.http.post(
        f"{wire.url}/allocate", json={"task": COUNT, "request_id": "r-2"}, headers=wire.headers
    ) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert await response.json() == {
            "kind": "busy",
            "message": "all 1 rooms of this server are taken",
            "retry_after_s": 1.0,
        }
    assert await wire.post(f"{room}/exec", command("fail no memory")) == (424, {"kind": "env", "message": "no memory"})
    status, refusal = await wire.post("/leases/0123/heartbeat")
    assert (status, refusal["kind"]) == (410, "gone")
    unknown = {"task": {**COUNT, "environment": "gui"}, "request_id": "r-3"}
    assert (await wire.post("/allocate", unknown))[0] == 422


async def test_a_defect_is_told_and_logged_without_its_insides(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    room = await wire.opened()
    async with wire.http.post(f"{wire.url}{room}/exec", json=command("defect"), headers=wire.headers) as response:
        assert response.status == 500
        assert "ZeroDivisionError" not in await response.text()
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged
    assert {record.name.partition(".")[0] for record in logged} == {"openclaw_rl"}


async def test_a_command_outlives_the_connection_that_asked_for_it(wire: Wire) -> None:
    room = await wire.opened()
    asking = asyncio.create_task(wire.post(f"{room}/exec", command("wait a minute")))
    await wire.environment.until(lambda: bool(wire.environment.ran))
    asking.cancel()
    await asyncio.wait((asking,))
    assert await wire.post(f"{room}/exec", command("wait a minute")) == (202, {})
    wire.environment.gate.set()
    status, answer = await wire.post(f"{room}/exec", command("wait a minute"))
    assert (status, answer["value"]) == (200, {"exit_code": 0, "output": "wait a minute #1 9 {}", "is_cut": False})


async def test_a_server_that_stops_tells_those_who_wait(wire: Wire) -> None:
    environment = CountingEnvironment()
    server = LocalEnvServer({"counting": environment}, lambda _: NO_PROGRAMS, capacity=1)
    async with aiohttp.ClientSession() as http:
        async with serve_envs(server, key=KEY) as url:
            other = Wire(environment, http, url)
            room = await other.opened()
            asking = asyncio.create_task(other.post(f"{room}/exec", command("wait")))
            await environment.until(lambda: bool(environment.ran))
        status, refusal = await asking
    assert (status, refusal["kind"]) == (410, "gone")
    assert refusal["message"].endswith("has ended: the environment server stopped")

"""The way from a box to the gateway: bytes both ways as they come, and nobody else's address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from openclaw_rl.envs.sandbox.door import gateway_address
from openclaw_rl.errors import EnvError, TaskError
from tests.fakes.boxes import Boxes, needs_python

_ASK = """
import socket, sys
link = socket.create_connection(("127.0.0.1", 8780), timeout=20)
link.sendall(b"ask\\n")
said = link.makefile("rb")
print(said.readline().decode().strip(), flush=True)
link.sendall(b"go on\\n")
print(said.read().decode().strip())
"""


class Gateway:
    """Says one line, waits for one, and says the rest."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.url = ""
        self.ended = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readline())
        writer.write(b"first\n")
        await writer.drain()
        self.heard.append(await reader.readline())
        writer.write(b"second\n" * 3)
        await writer.drain()
        writer.close()
        self.ended.set()


@asynccontextmanager
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()


@needs_python
async def test_what_is_said_comes_through_while_more_is_to_come(boxes: Boxes) -> None:
    async with gateway() as made:
        box = await boxes.open(gateway=made.url)
        ran = await box.run("python3 -", timeout_s=60, stdin=_ASK.encode())
        assert (ran.exit_code, ran.output) == (0, "first\nsecond\nsecond\nsecond\n")
        assert made.heard == [b"ask\n", b"go on\n"]


@needs_python
async def test_a_program_that_leaves_is_noticed_at_the_gateway(boxes: Boxes) -> None:
    async with gateway() as made:
        box = await boxes.open(gateway=made.url)
        await box.run("python3 -", timeout_s=60, stdin=_ASK.split('link.sendall(b"go')[0].encode())
        async with asyncio.timeout(30):
            await made.ended.wait()
        assert made.heard == [b"ask\n", b""]


@needs_python
async def test_each_box_has_its_own_door_and_none_has_another(boxes: Boxes) -> None:
    """Not to the gateway of its neighbour, not to the gateway's port, and none at all where none was asked for."""
    async with gateway() as one, gateway() as two:
        first, second, third = [await boxes.open(gateway=url) for url in (one.url, two.url, "")]
        for box in (first, second):
            assert (await box.run("python3 -", timeout_s=60, stdin=_ASK.encode())).exit_code == 0
        assert (len(one.heard), len(two.heard)) == (2, 2)
        assert "refused" in (await third.run("python3 -", timeout_s=60, stdin=_ASK.encode())).output
        past = _ASK.replace("8780", two.url.rpartition(":")[2])
        assert "refused" in (await first.run("python3 -", timeout_s=60, stdin=past.encode())).output
        assert len(two.heard) == 2


@needs_python
async def test_a_gateway_that_is_not_there_is_a_closed_connection(boxes: Boxes) -> None:
    async with gateway() as made:
        pass
    box = await boxes.open(gateway=made.url)
    said = (await box.run("python3 -", timeout_s=60, stdin=_ASK.encode())).output
    assert said.startswith("\n")
    assert "refused" not in said


@needs_python
async def test_closing_the_box_cuts_what_is_under_way(boxes: Boxes) -> None:
    async with gateway() as made:
        box = await boxes.open(gateway=made.url)
        hanging = _ASK.replace('link.sendall(b"go on\\n")', "import time; time.sleep(1000)")
        await box.write("/tmp/ask", hanging.encode())
        waiting = asyncio.create_task(box.run("python3 /tmp/ask >/tmp/said", timeout_s=60))
        await box.run("until grep -q first /tmp/said; do sleep 0.02; done", timeout_s=60)
        await box.close()
        async with asyncio.timeout(30):
            await made.ended.wait()
        with pytest.raises(EnvError, match="gone"):
            await waiting


def test_addresses_of_gateways() -> None:
    assert gateway_address("http://127.0.0.1:8000/") == ("127.0.0.1", 8000, False)
    assert gateway_address("http://[::1]:8000") == ("::1", 8000, False)
    assert gateway_address("https://example.org") == ("example.org", 443, True)
    for wrong in ("127.0.0.1:8000", "http://", "http://h/v1", "unix:/x"):
        with pytest.raises(TaskError, match="HOST:PORT"):
            gateway_address(wrong)

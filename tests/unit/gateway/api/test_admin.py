"""Examinations over the admin socket: each ends with its reader, and all with the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from openclaw_rl.gateway.access.auth import KeyRing
from openclaw_rl.gateway.api.admin import build_admin
from openclaw_rl.types import Json

ASKED = {"line": "local", "number": 1, "exam": {}}


class Endless:
    """Examines for ever, and notes that it was told to stop."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def __call__(
        self, line: str, number: int, exam: Mapping[str, Json], on_progress: Callable[[int, int], None]
    ) -> Json:
        on_progress(1, 2)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def client(examine: Endless) -> Any:
    store: Any = None  # examinations need none
    return TestClient(TestServer(build_admin(store, KeyRing(), examine=examine)))


async def test_who_leaves_ends_the_examination() -> None:
    examine = Endless()
    async with client(examine) as asking:
        response = await asking.post("/examine", json=ASKED)
        assert json.loads(await response.content.readline()) == {"done": 1, "total": 2}
        response.close()
        async with asyncio.timeout(60):
            await examine.ended.wait()


async def test_a_server_that_stops_says_so_to_who_waits() -> None:
    examine = Endless()
    async with client(examine) as asking:
        response = await asking.post("/examine", json=ASKED)
        await response.content.readline()
        stopping = asyncio.create_task(asking.app.shutdown())
        lines = [json.loads(line) async for line in response.content]
        assert lines[-1] == {"error": "the server stops"}
        await stopping
    assert examine.ended.is_set()

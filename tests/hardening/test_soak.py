"""Many people for a long time: what the server keeps in memory reaches a plateau, and the plateau is low."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hardening.report import report
from tests.server import Server
from tests.wire.asking import CHAT, Admin, bot, user

MIB = 2**20
NUM_REQUESTS = 20_000
WARM_UP = 5_000
STEP = 1_000
NUM_PEOPLE = 12
MAX_GROWTH_MIB = 1.0
"""For each thousand requests after the first five thousand."""


class Weighed(Server):
    module = "tests.hardening.weighed"

    def weight(self) -> int:
        """Bytes in memory, of which none is free."""
        told = self.data_dir / "weight"
        told.unlink(missing_ok=True)
        (self.data_dir / "weigh").write_text("now")
        self.wait_until(told.exists)
        return int(told.read_text())


class Person:
    """Asks one thing after the other: alone, in conversations that go on, and in one that has a name."""

    def __init__(self, name: str, key: str, client: httpx.AsyncClient) -> None:
        self._name = name
        self._headers = {"Authorization": f"Bearer {key}"}
        self._client = client
        self._draw = random.Random(name)
        self._number = itertools.count()
        self._talks: list[list[dict[str, Any]]] = [[]]

    async def ask(self) -> None:
        number, die = next(self._number), self._draw.random()
        words = f"{self._name} asks for number {number}: " + "so and so. " * self._draw.randrange(3, 12)
        headers = dict(self._headers)
        if die < 0.4:
            talk: list[dict[str, Any]] = []
        elif die < 0.9:
            talk = self._draw.choice(self._talks)
            if len(talk) > 12 or len(self._talks) < 4:
                self._talks = [[], *self._talks[:6]]
                talk = self._talks[0]
        else:
            talk, headers["X-Session-Id"] = [], f"{self._name}-diary-{number // 40}"
        talk.append(user(words))
        answer = await self._client.post(CHAT, json={"messages": talk, "max_tokens": 24}, headers=headers)
        assert answer.status_code == 200, answer.text
        talk.append(bot(answer.json()["choices"][0]["message"]["content"]))


async def soak(server: Weighed, num_requests: int) -> list[int]:
    """The weight at the beginning and after each thousand requests."""
    with Admin(server) as admin:
        keys = [admin.add_key(f"person{number}")[1] for number in range(NUM_PEOPLE)]
    limits = httpx.Limits(max_connections=NUM_PEOPLE)
    weights = [server.weight()]
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
        people = [Person(f"person{number}", key, client) for number, key in enumerate(keys)]
        while len(weights) <= num_requests // STEP:
            left = iter(range(STEP))

            async def talk(person: Person, left: Any = left) -> None:
                for _ in left:
                    await person.ask()

            await asyncio.gather(*map(talk, people))
            weights.append(await asyncio.to_thread(server.weight))
            print(f"{STEP * (len(weights) - 1)} requests: {weights[-1] / MIB:.1f} MiB", flush=True)
    return weights


@pytest.mark.hardening
@pytest.mark.timeout(1800)
async def test_memory_reaches_a_plateau(tmp_path: Path) -> None:
    with Weighed(tmp_path, "engine.scripted.tokens_per_s=100000") as server:
        weights = await soak(server, NUM_REQUESTS)
    after = weights[WARM_UP // STEP :]
    growth = (after[-1] - after[0]) / MIB / (len(after) - 1)
    report("soak", requests=NUM_REQUESTS, mib_at_end=round(after[-1] / MIB, 1), mib_per_thousand=round(growth, 2))
    assert growth <= MAX_GROWTH_MIB, [round(weight / MIB, 1) for weight in weights]

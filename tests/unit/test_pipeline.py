"""When the parts that a lesson needs are made ready: with the first turn, or at once where a GPU has room for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from openclaw_rl.pipeline import _warm
from openclaw_rl.protocols import EngineHost, LearningStore
from openclaw_rl.types import EngineState

pytestmark = pytest.mark.asyncio


@dataclass(kw_only=True)
class _Host:
    device: str

    async def wait_ready(self) -> EngineState:
        return EngineState(
            model="m",
            versions=(),
            live_version="base",
            context_window=1,
            vocab_size=1,
            device=self.device,
            dtype="float32",
        )


@dataclass(kw_only=True)
class _Lessons:
    turned: asyncio.Event = field(default_factory=asyncio.Event)

    def woken(self, topic: str) -> asyncio.Event:
        assert topic == "warm"
        return self.turned


async def _made_ready(device: str, *, after_a_turn: bool) -> list[str]:
    done: list[str] = []

    async def judges() -> None:
        done.append("judges")

    async def trainer() -> None:
        done.append("trainer")

    lessons = _Lessons()
    host = cast(EngineHost, _Host(device=device))
    idle = asyncio.Queue[str]()
    warming = asyncio.create_task(_warm(host, cast(LearningStore, lessons), judges, trainer, idle))
    if after_a_turn:
        lessons.turned.set()
    for _ in range(10):
        await asyncio.sleep(0)
    warming.cancel()
    await asyncio.gather(warming, return_exceptions=True)
    return [*done, *(["gate"] if idle.qsize() else [])]


async def test_on_a_gpu_all_is_made_ready_at_the_start() -> None:
    assert await _made_ready("cuda:0", after_a_turn=False) == ["judges", "trainer", "gate"]


async def test_on_a_cpu_the_first_turn_has_the_cores_first() -> None:
    assert await _made_ready("cpu", after_a_turn=False) == []
    assert await _made_ready("cpu", after_a_turn=True) == ["judges", "trainer", "gate"]

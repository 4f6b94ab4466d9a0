"""How many answers a second one gateway gives while every connection is another person, with limits and without.

The real system over the scripted engine, answers on disk before their last byte. Each of the connections comes with a
key of its own. `limited` is the same with limits that nobody reaches: what it costs to count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import uvloop

from benchmarks import prompts
from benchmarks.load import best_rate, closed_loop, connect, percentile
from benchmarks.people import Place
from benchmarks.prompts import Chat
from benchmarks.scale import Chosen
from benchmarks.system import System, require_disk

PEOPLE = 64

FIGURES = {
    "gateway_people_rps": (f"{PEOPLE} people, one gateway: best window, requests/s", ""),
    "gateway_people_p99_ms": ("  p99 from request to last byte, ms", ""),
    "gateway_limited_rps": ("  with limits on each key that nobody reaches", ""),
    "gateway_limited_over_plain": ("  limited over plain", ""),
}

_LIMITS = ("gateway.requests_per_minute=1000000", "gateway.tokens_per_minute=1000000000")


def measure(chosen: Chosen) -> Mapping[str, float]:
    require_disk(chosen.directory)
    plain, p99_ms = uvloop.run(_measured(chosen.directory / "plain", quick=chosen.quick))
    limited, _ = uvloop.run(_measured(chosen.directory / "limited", *_LIMITS, quick=chosen.quick))
    return {
        "gateway_people_rps": plain,
        "gateway_people_p99_ms": p99_ms,
        "gateway_limited_rps": limited,
        "gateway_limited_over_plain": limited / plain,
    }


async def _measured(directory: Path, *settings: str, quick: bool) -> tuple[float, float]:
    """The best window, and the 99th percentile of all answers in ms."""
    window_s, num_windows = (1.0, 2) if quick else (3.0, 5)
    with System(directory, f"engine.scripted.replies={json.dumps(prompts.SCRIPT)}", *settings) as system:
        place = Place.of(system, batch_size=1)
        chats = [Chat(await place.new_key(f"p{number}")) for number in range(PEOPLE)]
        connections = await connect(system.address, PEOPLE)

        def make(number: int) -> bytes:
            return chats[number].request(prompts.opening())

        await closed_loop(connections, make, seconds=window_s)
        begin = time.perf_counter()
        answers = await closed_loop(connections, make, seconds=window_s * num_windows)
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)
    rate = best_rate(answers, begin=begin, window_s=window_s, num_windows=num_windows)
    return rate, 1000 * percentile((answer.seconds for answer in answers), 99)

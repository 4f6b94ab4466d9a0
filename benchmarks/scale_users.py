"""Many people on one embedded engine, each with an adapter of their own, and more of them than fit into memory.

    users      with 1, 8, 32 and 256 people everybody asks once, all at the same time: answers a second and the times to
               a first token, with room for 16 adapters
    unlucky    64 people who ask again as soon as they are answered, one of whom always has ten requests under way: how
               long the unluckiest of the others waits for a first token, at the 99th percentile of their requests,
               against the median of all

The embedded model on a CPU, a network of the shape of Qwen3-4B on a GPU. Adapters are random, of rank 16, on all
projections; each lies in a folder of its own and is read, and hashed, whenever it is needed and not there.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from statistics import median

import torch

from benchmarks.embedded import architecture, has_gpu, open_engine, prompt_ids
from benchmarks.load import percentile
from benchmarks.scale import Chosen
from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import GenerateRequest, Publication, Sampling, WeightsRef

RANK, ROOM, PROMPT, ANSWER, CROWD, GREED = 16, 16, 24, 8, 64, 10
USERS, QUICK_USERS = (1, 8, 32, 256), (1, 8, 32)

FIGURES = {
    **{
        name: told
        for num in USERS
        for name, told in {
            f"answers_per_s_{num}": (f"{num} people at once: answers/s", ""),
            f"ttft_p50_s_{num}": ("  time to first token, median, s", ""),
            f"ttft_p99_s_{num}": ("  99th percentile, s", ""),
            f"brought_{num}": ("  adapters brought into memory meanwhile", ""),
        }.items()
    },
    "bring_ms": ("an adapter read, hashed and ready, ms (median)", ""),
    "adapter_mib": ("  its size, MiB", ""),
    "unlucky_p99_s": (f"{CROWD} people, one greedy: p99 wait of the unluckiest of the others, s", ""),
    "unlucky_median_s": ("  median wait of all others, s", ""),
    "unlucky_over_median": ("  unluckiest over median", "<= 3"),
}


def measure(chosen: Chosen) -> Mapping[str, float]:
    return asyncio.run(_measure(chosen))


async def _measure(chosen: Chosen) -> dict[str, float]:
    users = QUICK_USERS if chosen.quick else USERS
    versions = [await asyncio.to_thread(_made, chosen.directory / f"v{n}", n) for n in range(1, max(*users, CROWD) + 1)]
    engine = open_engine(max_active=8, max_queued=2 * max(users) + CROWD * GREED, max_adapters=ROOM)
    found: dict[str, float] = {}
    took = list[float]()
    for version in versions:
        began_at = time.perf_counter()
        await engine.publish(version)
        took.append(1000 * (time.perf_counter() - began_at))
    found["bring_ms"] = median(took)
    folder = versions[0].weights
    assert folder is not None
    assert folder.folder is not None
    found["adapter_mib"] = sum(file.stat().st_size for file in folder.folder.iterdir()) / 2**20
    for num in users:
        found |= await _at_once(engine, num)
    found |= await _unlucky(engine, seconds=20.0)
    await engine.close()
    return found


def _made(folder: Path, number: int) -> Publication:
    adapter = AdapterWeights.random(
        architecture(),
        rank=RANK,
        alpha=2.0 * RANK,
        seed=number,
        b_std=0.001,
        device=torch.device("cpu"),
        dtype=torch.bfloat16 if has_gpu() else torch.float32,
    )
    adapter.save(folder)
    weights = WeightsRef.of_folder(folder, folder_sha256(folder))
    return Publication(version=f"v{number}", weights=weights, live=False)


async def _ask(engine: EmbeddedEngine, user: int, seed: int) -> float:
    """The seconds until the first token; returns at the end of the answer."""
    request = GenerateRequest(
        request_id=f"{user}-{seed}",
        token_ids=prompt_ids(architecture(), PROMPT, seed=seed),
        sampling=Sampling(max_tokens=ANSWER, temperature=0.0),
        version=f"v{user}",
        cache_salt=f"user {user}",
        party=f"user {user}",
    )
    began_at, first_s = time.perf_counter(), 0.0
    async with aclosing(engine.generate(request)) as deltas:
        async for _ in deltas:
            first_s = first_s or time.perf_counter() - began_at
    return first_s


async def _at_once(engine: EmbeddedEngine, num: int) -> dict[str, float]:
    there, began_at = set(engine.in_memory), time.perf_counter()
    waits = await asyncio.gather(*(_ask(engine, user, 7 * user + num) for user in range(1, num + 1)))
    seconds = time.perf_counter() - began_at
    return {
        f"answers_per_s_{num}": num / seconds,
        f"ttft_p50_s_{num}": median(waits),
        f"ttft_p99_s_{num}": percentile(waits, 99),
        f"brought_{num}": num - len(there & {f"v{user}" for user in range(1, num + 1)}),
    }


async def _unlucky(engine: EmbeddedEngine, *, seconds: float) -> dict[str, float]:
    """The first of the people always has ten requests under way."""
    waits: defaultdict[int, list[float]] = defaultdict(list)
    end = time.perf_counter() + seconds

    async def talks(user: int, number: int) -> None:
        turn = number
        while time.perf_counter() < end:
            turn += 100
            waits[user].append(await _ask(engine, user, 1000 * user + turn))

    people = [talks(1, number) for number in range(GREED)] + [talks(user, 0) for user in range(2, CROWD + 1)]
    await asyncio.gather(*people)
    others = {user: each for user, each in waits.items() if user != 1}
    unluckiest = max(percentile(each, 99) for each in others.values())
    middle = median(wait for each in others.values() for wait in each)
    return {"unlucky_p99_s": unluckiest, "unlucky_median_s": middle, "unlucky_over_median": unluckiest / middle}

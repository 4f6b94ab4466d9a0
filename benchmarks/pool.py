"""What several engines behind one gateway give and cost: the real system over 1, 2 and 4 scripted engines.

    python benchmarks/pool.py [--quick] [--json] [--dir DIRECTORY]

**Throughput**: 64 connections in a closed loop, 4 KiB prompts, every answer on disk before its last byte. One engine is
without a pool. The scripted engine computes nothing, so that what is measured is the gateway; more engines on the same
cores do not make it faster.

**Added**: the same requests to a worker and through a pool of two such workers, by turns in one process: one after the
other, and 64 at a time.

**Refused**: 64 streams at a time on three engines that write 200 tokens a second, of which one after the other is ended
by kill -9. Every answer must come whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeVar

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks import prompts
from benchmarks.load import Answer, Connection, LoadError, best_rate, closed_loop, connect
from benchmarks.prompts import Chat
from benchmarks.system import System, require_disk
from openclaw_rl.config import load_config
from openclaw_rl.engine.pool.pool import Pool
from openclaw_rl.engine.registry import make_host
from openclaw_rl.model.files import ModelFiles, resolve_model
from openclaw_rl.protocols import Engine, EngineHost
from openclaw_rl.render import load_renderer
from openclaw_rl.types import GenerateRequest, Message, Sampling

T = TypeVar("T")

NUM_CONNECTIONS = 64
SCRIPT = f"engine.scripted.replies={json.dumps(prompts.SCRIPT)}"

FIGURES = {
    "rps_1": ("64 connections, one engine, best window, requests/s", ""),
    "rps_2": ("  two engines", ""),
    "rps_4": ("  four engines", ""),
    "direct_p50_ms": ("one request at a time, straight to a worker: p50, ms", ""),
    "added_p50_ms": ("  added by a pool of two", "<= 1"),
    "added_p99_ms": ("  added p99", ""),
    "direct_p50_ms_64": ("64 at a time, straight to two workers: p50, ms", ""),
    "added_p50_ms_64": ("  added by a pool of the two, whose work for 64 comes at once", ""),
    "kills": ("kill -9 of one of three engines under 64 streams", ""),
    "answers": ("answers meanwhile", ""),
    "refused": ("  refused, cut short or changed", "0"),
    "longest_s": ("  the longest that one took, s", ""),
    "seconds": ("length of the run, s", ""),
}


async def measure_rate(directory: Path, *, num_engines: int, window_s: float) -> float:
    """Requests a second in the best of three windows."""
    with System(directory / f"engines-{num_engines}", SCRIPT, f"engine.replicas={num_engines}") as system:
        chat = Chat(system.key)
        connections = await connect(system.address, NUM_CONNECTIONS)
        await closed_loop(connections, lambda _: chat.request(prompts.opening()), seconds=window_s)
        begin = time.perf_counter()
        answers = await closed_loop(connections, lambda _: chat.request(prompts.opening()), seconds=3 * window_s)
        for connection in connections:
            connection.close()
    return best_rate(answers, begin=begin, window_s=window_s, num_windows=3)


class Pair:
    """Two supervised workers in this process, and a pool over them."""

    def __init__(self, directory: Path) -> None:
        config = load_config(env=os.environ).config
        self.model: ModelFiles = resolve_model(config.model)
        engine = config.engine.model_copy(update={"type": "scripted"})
        hosts: dict[str, EngineHost] = {
            f"engine {number}": make_host(engine, self.model, directory / f"{number}.sock") for number in (1, 2)
        }
        self.pool = Pool(hosts)

    async def requests(self, num: int) -> list[GenerateRequest]:
        """Each of a conversation of its own, with the same words."""
        renderer = await asyncio.to_thread(load_renderer, self.model.tokenizer_path, self.model.name)
        history = [prompts.SYSTEM_PROMPT, Message(role="user", content=prompts.prose(512))]
        request = GenerateRequest(
            request_id="r",
            token_ids=renderer.render(history, (), {}),
            sampling=Sampling(max_tokens=64),
            stop_token_ids=renderer.stop_token_ids,
            cache_salt="bench",
        )
        return [replace(request, request_id=f"r-{one}", conversation=f"s-{one}") for one in range(num)]

    def straight(self, request: GenerateRequest) -> Engine:
        """The worker that the pool would choose, if nobody else asked."""
        member = self.pool.roster.choose(f"bench\0{request.conversation}", None, [])
        assert member is not None
        return member.engine


async def _timed(engine: Engine, request: GenerateRequest) -> float:
    began_at = time.perf_counter()
    async with aclosing(engine.generate(request)) as deltas:
        async for _ in deltas:
            pass
    return time.perf_counter() - began_at


async def measure_added(directory: Path, *, num: int) -> dict[str, float]:
    """By turns, so that what else the machine does hits both."""
    pair = Pair(directory)
    running = asyncio.create_task(pair.pool.run())
    try:
        await pair.pool.wait_ready()
        await asyncio.gather(*(member.host.wait_ready() for member in pair.pool.members))
        direct, pooled, direct_64, pooled_64 = list[float](), list[float](), list[float](), list[float]()
        for place, request in enumerate(await pair.requests(num)):
            for engine, times in _in_turn(place, (pair.straight(request), direct), (pair.pool.engine, pooled)):
                times.append(await _timed(engine, request))
        crowd = await pair.requests(NUM_CONNECTIONS)
        workers = [pair.straight(request) for request in crowd]
        pools: list[Engine] = [pair.pool.engine] * len(crowd)
        for place in range(max(2, num // 40)):
            for engines, times in _in_turn(place, (workers, direct_64), (pools, pooled_64)):
                times += await asyncio.gather(*map(_timed, engines, crowd))
    finally:
        await pair.pool.stop()
        await running
    return {
        "direct_p50_ms": 1000 * median(direct),
        "added_p50_ms": 1000 * (median(pooled) - median(direct)),
        "added_p99_ms": 1000 * (sorted(pooled)[-1 - num // 100] - sorted(direct)[-1 - num // 100]),
        "direct_p50_ms_64": 1000 * median(direct_64),
        "added_p50_ms_64": 1000 * (median(pooled_64) - median(direct_64)),
    }


def _in_turn(place: int, one: T, other: T) -> tuple[T, T]:
    return (one, other) if place % 2 else (other, one)


async def measure_kills(directory: Path, *, num_kills: int) -> dict[str, float]:
    """64 people, each of whom asks again when answered, while engines die."""
    told, refused, done = list[Answer](), 0, asyncio.Event()
    settings = (SCRIPT, "engine.replicas=3", "engine.scripted.tokens_per_s=200")
    with System(directory / "kills", *settings) as system:
        chat, gateway = Chat(system.key), psutil.Process(system.engines[0].ppid())
        expected = await _spoken(chat, (await connect(system.address, 1))[0])

        async def talk(connection: Connection) -> None:
            nonlocal refused
            while not done.is_set():
                try:
                    answer = await connection.ask(_streamed(chat))
                except LoadError:
                    refused += 1
                    (connection,) = await connect(system.address, 1)
                    continue
                told.append(answer)
                refused += _text(answer) != expected

        talking = [asyncio.create_task(talk(one)) for one in await connect(system.address, NUM_CONNECTIONS)]
        for number in range(num_kills):
            await asyncio.sleep(2.0)
            with suppress(IndexError):  # one is between two lives
                gateway.children()[number % 3].kill()
        await asyncio.sleep(1.0)
        done.set()
        await asyncio.gather(*talking)
    return {
        "kills": num_kills,
        "answers": len(told),
        "refused": refused,
        "longest_s": max(answer.seconds for answer in told),
    }


def _streamed(chat: Chat) -> bytes:
    return chat.request(prompts.streamed_opening(), max_tokens=200, stream=True)


async def _spoken(chat: Chat, connection: Connection) -> str:
    return _text(await connection.ask(_streamed(chat)))


def _text(answer: Answer) -> str:
    """What its content deltas add up to."""
    whole = b"".join(part for _, part in answer.arrivals).partition(b"\r\n\r\n")[2]
    lines = (line[6:] for line in whole.split(b"\n") if line.startswith(b"data: {"))
    return "".join(
        choice["delta"].get("content") or "" for line in lines for choice in json.loads(line).get("choices", ())
    )


async def measure(directory: Path, *, quick: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for num in (1, 2, 4):
        found[f"rps_{num}"] = await measure_rate(directory, num_engines=num, window_s=1.0 if quick else 3.0)
    found |= await measure_added(directory, num=200 if quick else 1000)
    return found | await measure_kills(directory, num_kills=3 if quick else 9)


def show(found: dict[str, float], *, as_json: bool) -> None:
    for name, (label, bar) in FIGURES.items():
        print(f"{name:20} {found[name]:>10,.2f}  {label}{f'  ({bar})' if bar else ''}")
    if as_json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()}))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure several engines behind one gateway.")
    parser.add_argument("--quick", action="store_true", help="half a minute; rougher figures")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the store lies: a disk")
    arguments = parser.parse_args()
    began_at = time.monotonic()
    try:
        require_disk(arguments.dir)
        with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.dir) as directory:
            found = uvloop.run(measure(Path(directory), quick=arguments.quick))
    except LoadError as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    found["seconds"] = time.monotonic() - began_at
    show(found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

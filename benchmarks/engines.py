"""The embedded engine and vLLM on a CPU, behind the same host: the same weights, requests and adapters, one table.

    python benchmarks/engines.py [--json] [--quick] [--threads N] [--only float32|vllm|quantised]

    float32     the embedded engine on the weights that vLLM has, in the same precision
    vllm        vLLM for CPUs
    quantised   the embedded engine as it is by default, on the same weights in a sixth of the bytes

Each engine is started as `openclaw-rl up` starts it, for 32 requests at once, and asked through its host, one engine
after the other. Streams are greedy, of 64 tokens of prompt and 32 of answer. The session of twenty turns adds 60 tokens
a turn; its last turn is timed. While eight streams write, adapters of rank 16 are published and made live: the gap is
the longest pause of a stream that ends within a second of it, beside the longest one of a stream without any publish.
From adapter to live is the time of `publish` with nothing else running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

import torch

from benchmarks.embedded import architecture, machine, parser, prompt_ids
from openclaw_rl.config import EngineConfig, ModelConfig
from openclaw_rl.engine.registry import make_host
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.files import resolve_model
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import Engine
from openclaw_rl.types import GenerateRequest, Publication, Sampling, WeightsRef

ENGINES: Mapping[str, Mapping[str, str]] = {
    "float32": {"type": "embedded", "weights": "float32"},
    "vllm": {"type": "vllm", "dtype": "float32"},
    "quantised": {"type": "embedded", "weights": "quantised"},
}
PROMPT, ANSWER, TURN, NUM_TURNS, NUM_PUBLISHES = 64, 32, 60, 20, 4
MAX_STREAMS = 32
LABELS = {
    "start_s": "from the start to the first answer that could be given, s",
    "streams1_tok_s": "one stream, tokens/s",
    "streams8_tok_s": "eight streams, tokens/s together",
    "streams32_tok_s": "thirty-two streams, tokens/s together",
    "adapter8_tok_s": "eight streams by one adapter, tokens/s together",
    "ttft20_ms": "time to the first token at turn twenty of a session, ms",
    "gap_without_ms": "eight streams: longest pause without a publish, median, ms",
    "gap_with_ms": "eight streams: longest pause with one, median, ms",
    "to_live_ms": "from an adapter on disk to live, median, ms",
}


async def stream(
    engine: Engine, prompt: Sequence[int], size: int, *, salt: str = "", version: str | None = None
) -> list[float]:
    """When each token of a greedy answer arrived, on the machine's clock."""
    sampling = Sampling(max_tokens=size, temperature=0.0)
    request = GenerateRequest(
        request_id="bench", token_ids=list(prompt), sampling=sampling, cache_salt=salt, version=version
    )
    arrivals: list[float] = []
    async with aclosing(engine.generate(request)) as deltas:
        async for delta in deltas:
            arrivals += [time.perf_counter()] * len(delta.token_ids)
    return arrivals


async def speed(engine: Engine, num: int, *, version: str | None = None) -> float:
    """Tokens in a second of so many streams together."""
    prompts = [prompt_ids(architecture(), PROMPT, seed=number) for number in range(num)]
    began_at = time.perf_counter()
    answers = await asyncio.gather(*(stream(engine, prompt, ANSWER, version=version) for prompt in prompts))
    return sum(map(len, answers)) / (time.perf_counter() - began_at)


async def ttft(engine: Engine) -> float:
    """Of the last turn of a session, in seconds."""
    ids = prompt_ids(architecture(), NUM_TURNS * TURN, seed=99)
    first = 0.0
    for turn in range(1, NUM_TURNS + 1):
        began_at = time.perf_counter()
        arrivals = await stream(engine, ids[: turn * TURN], 4, salt="session")
        first = arrivals[0] - began_at
    return first


async def gaps(engine: Engine, publications: Sequence[Publication]) -> tuple[list[float], list[float]]:
    """The longest pause of eight streams, without a publish and with one."""
    without, with_publish = list[float](), list[float]()
    for publication in publications:
        for publishes in (False, True):
            prompts = [prompt_ids(architecture(), PROMPT, seed=number) for number in range(8)]
            tasks = [asyncio.create_task(stream(engine, prompt, ANSWER)) for prompt in prompts]
            await asyncio.sleep(0.5)
            if publishes:
                await engine.publish(publication)
            answers = await asyncio.gather(*tasks)
            longest = max(later - earlier for answer in answers for earlier, later in pairwise(answer))
            (with_publish if publishes else without).append(longest)
    return without, with_publish


async def measure(kind: str, folder: Path, versions: Sequence[WeightsRef], *, threads: int | None) -> dict[str, float]:
    model = resolve_model(ModelConfig())
    settings = {**ENGINES[kind], "threads": threads, "context_window": 2048, "max_active": MAX_STREAMS}
    config = EngineConfig.model_validate(settings)
    began_at = time.perf_counter()
    host = make_host(config, model, folder / f"{kind}.sock", name=kind)
    task = asyncio.create_task(host.run())
    try:
        await host.wait_ready(900.0)
        engine = host.engine
        found = {"start_s": time.perf_counter() - began_at}
        await speed(engine, 2)  # what is compiled at the first request
        for num in (1, 8, MAX_STREAMS):
            found[f"streams{num}_tok_s"] = await speed(engine, num)
        found["ttft20_ms"] = 1000 * await ttft(engine)
        took = []
        for number, weights in enumerate(versions):
            begin = time.perf_counter()
            await engine.publish(Publication(version=f"v{number + 1}", weights=weights))
            took.append(time.perf_counter() - begin)
        found["to_live_ms"] = 1000 * median(took)
        found["adapter8_tok_s"] = await speed(engine, 8, version="v1")
        later = [
            Publication(version=f"v{len(versions) + number + 1}", weights=weights)
            for number, weights in enumerate(versions)
        ]
        await engine.publish(Publication(version="v0"))
        without, with_publish = await gaps(engine, later)
        found["gap_without_ms"], found["gap_with_ms"] = 1000 * median(without), 1000 * median(with_publish)
        return found
    finally:
        await host.engine.close()
        await asyncio.wait((task,))


def adapters(folder: Path, num: int) -> list[WeightsRef]:
    found = []
    for number in range(num):
        place = folder / f"adapter{number}"
        AdapterWeights.random(
            architecture(),
            rank=16,
            alpha=32.0,
            seed=number,
            b_std=0.001,
            device=torch.device("cpu"),
            dtype=torch.float32,
        ).save(place)
        found.append(WeightsRef.of_folder(place, folder_sha256(place)))
    return found


def show(found: Mapping[str, Mapping[str, float]], *, as_json: bool) -> None:
    """A row for each figure, a column for each engine; the JSON object is the last line."""
    print(f"on {machine()}")
    print(f"{'':58}" + "".join(f"{kind:>12}" for kind in found))
    for name, label in LABELS.items():
        print(f"{label:58}" + "".join(f"{figures[name]:>12,.1f}" for figures in found.values()))
    sys.stdout.flush()
    if as_json:
        print(json.dumps({kind: {name: round(one, 4) for name, one in row.items()} for kind, row in found.items()}))


def main() -> int:
    made = parser("Measure engines behind the same host.")
    made.add_argument("--only", choices=ENGINES, help="one engine alone")
    arguments: argparse.Namespace = made.parse_args()
    threads = arguments.threads or len(os.sched_getaffinity(0))
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        versions = adapters(Path(folder), 2 if arguments.quick else NUM_PUBLISHES)
        for kind in (arguments.only,) if arguments.only else ENGINES:
            try:
                found[kind] = asyncio.run(measure(kind, Path(folder), versions, threads=threads))
            except ConfigError as error:
                print(f"{kind} is not measured: {error}")
    show(found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

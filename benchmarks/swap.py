"""The longest pause of running streams across a publish, against their longest pause without one.

    python benchmarks/swap.py [--json] [--quick]

Eight streams write without end. Windows with a publish and windows without alternate, so that what else the machine
does hits both. A publish loads an adapter of rank 16 from disk, checks it and makes it live; the one before it is
retired. Every answer is counted: none may be refused, cut short or restarted.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import architecture, open_engine, parser, prompt_ids, show, stream
from openclaw_rl.errors import EngineError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import Publication, WeightsRef

NUM_STREAMS, NUM_PUBLISHES = 8, 50

FIGURES = {
    "step_ms": ("one decode step of eight streams (median gap), ms", ""),
    "gap_without_ms": ("longest gap in a window without a publish, median, ms", ""),
    "gap_with_ms": ("longest gap in a window with a publish, median, ms", ""),
    "extra_gap_steps": ("  the difference in decode steps", "<= 2"),
    "worst_gap_with_ms": ("longest gap of all with a publish, ms", ""),
    "worst_gap_without_ms": ("longest gap of all without, ms", ""),
    "publish_ms": ("from publish to live, median, ms", ""),
    "publishes": ("publishes under load", ">= 50"),
    "answers": ("answers finished meanwhile", ""),
    "versions": ("versions that answered", ""),
    "refused": ("answers refused, cut short or mixed", "0"),
    "seconds": ("length of the run, s", ""),
}


class Streams:
    """Eight streams that go on until told to stop, and the times at which any of them got a token."""

    def __init__(self, engine: object) -> None:
        self._engine = engine
        self.gaps: list[tuple[float, float]] = []
        """(end, length) of every pause between two tokens of one stream."""
        self.num_answers = 0
        self.num_refused = 0
        self.versions: set[str] = set()
        self.stop = False

    async def talk(self, number: int) -> None:
        arch, size, turn = architecture(), 40, 0
        while not self.stop:
            prompt = prompt_ids(arch, 64, seed=1000 * number + turn)
            turn += 1
            began_at = time.perf_counter()
            try:
                answer = await stream(self._engine, prompt, max_tokens=size, name=f"{number}-{turn}")  # type: ignore[arg-type]
            except EngineError:
                self.num_refused += 1
                continue
            self.num_refused += len(answer.token_ids) != size
            self.num_answers += 1
            self.versions.add(answer.version)
            self.gaps += [
                (began_at + end, end - start) for start, end in zip(answer.arrivals, answer.arrivals[1:], strict=False)
            ]

    def longest(self, begin: float, end: float) -> float:
        """The longest pause that ended within a window."""
        return max((length for at, length in self.gaps if begin <= at < end), default=0.0)


async def measure(
    folders: Sequence[Path], *, num_publishes: int, window_s: float, threads: int | None
) -> dict[str, float]:
    checksums = [folder_sha256(folder) for folder in folders]  # the publisher's work, and long enough to be seen here
    engine = open_engine(threads=threads, max_active=NUM_STREAMS)
    streams = Streams(engine)
    talking = [asyncio.create_task(streams.talk(number)) for number in range(NUM_STREAMS)]
    await asyncio.sleep(3 * window_s)
    windows: list[tuple[float, float, bool]] = []
    took: list[float] = []
    for number in range(1, num_publishes + 1):
        begin = time.perf_counter()
        await asyncio.sleep(window_s)
        windows.append((begin, time.perf_counter(), False))
        which = number % len(folders)
        publication = Publication(version=f"v{number}", weights=WeightsRef.of_folder(folders[which], checksums[which]))
        begin = time.perf_counter()
        await engine.publish(publication)
        took.append(time.perf_counter() - begin)
        if number > 1:
            await engine.retire(f"v{number - 1}")
        await asyncio.sleep(max(0.0, window_s - (time.perf_counter() - begin)))
        windows.append((begin, time.perf_counter(), True))
    streams.stop = True
    await asyncio.gather(*talking)
    await engine.close()
    step = median(length for _, length in streams.gaps)
    with_publish = [streams.longest(begin, end) for begin, end, published in windows if published]
    without = [streams.longest(begin, end) for begin, end, published in windows if not published]
    return {
        "step_ms": 1000 * step,
        "gap_without_ms": 1000 * median(without),
        "gap_with_ms": 1000 * median(with_publish),
        "extra_gap_steps": (median(with_publish) - median(without)) / step,
        "worst_gap_with_ms": 1000 * max(with_publish),
        "worst_gap_without_ms": 1000 * max(without),
        "publish_ms": 1000 * median(took),
        "publishes": num_publishes,
        "answers": streams.num_answers,
        "versions": len(streams.versions),
        "refused": streams.num_refused,
    }


def main() -> int:
    arguments = parser("Measure what a publish costs running streams.").parse_args()
    began_at, arch = time.monotonic(), architecture()
    with tempfile.TemporaryDirectory() as directory:
        folders = [Path(directory) / str(number) for number in range(4)]
        for number, folder in enumerate(folders):
            adapter = AdapterWeights.random(
                arch, rank=16, alpha=32.0, seed=number, b_std=0.001, device=torch.device("cpu"), dtype=torch.float32
            )
            adapter.save(folder)
        found = asyncio.run(
            measure(
                folders,
                num_publishes=10 if arguments.quick else NUM_PUBLISHES,
                window_s=1.5,
                threads=arguments.threads,
            )
        )
    found["seconds"] = time.monotonic() - began_at
    show(FIGURES, found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the gateway costs: the real system over the scripted engine, every answer on disk before its last byte.

    python benchmarks/gateway.py [--quick] [--json] [--dir DIRECTORY]

Prints a table; with `--json` also one object of all figures as the last line. docs/benchmarks.md says what each figure
means and what was measured. Ends with status 1 if a request failed or an acknowledged turn is not in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks import prompts
from benchmarks.load import (
    Answer,
    Connection,
    LoadError,
    Make,
    best_rate,
    closed_loop,
    connect,
    open_loop,
    percentile,
)
from benchmarks.prompts import KIB, Chat, Direct
from benchmarks.system import System, commit_cost, require_disk

NUM_CONNECTIONS = 64
PACED_PER_S = 200.0
NUM_AGENTS = 16
HISTORY_BYTES = 200 * KIB
MiB = 1024 * KIB
NUM_STREAMS = 200
PACES = (50, 20)

FIGURES = {
    "rps_64": ("64 connections, closed loop: best window, requests/s", ">= 500, aim 1000"),
    "rps_64_mean": ("  all windows", ""),
    "p99_ms_64": ("  p99 from request to last byte, ms", ""),
    "cpu_ms_gateway": ("  CPU of the gateway per request, ms", ""),
    "cpu_ms_engine": ("  CPU of the scripted engine per request, ms", ""),
    "cpu_ms_generator": ("  CPU of the load generator per request, ms", ""),
    "rps_64_session": ("  conversations that grow to 16 KiB, best window", ""),
    "rps_64_fresh": ("  4 KiB of new text in each request, best window", ""),
    "added_p50_ms_64": ("64 connections paced at 200/s: added p50, ms", "<= 12"),
    "added_p99_ms_64": ("  added p99, ms", "<= 43, aim 10"),
    "paced_p50_ms_64": ("  p50 through the gateway, ms", ""),
    "paced_p99_ms_64": ("  p99 through the gateway, ms", ""),
    "direct_p50_ms_64": ("  p50 straight to the engine, ms", ""),
    "direct_p99_ms_64": ("  p99 straight to the engine, ms", ""),
    "stolen_percent_64": ("  CPU time that the host took away meanwhile, % of what was wanted", ""),
    "added_p50_ms_1": ("one connection: added p50, one fsync included, ms", "<= 4.3 + one fsync"),
    "rps_16_200k": ("16 agents that resend 200 KiB and a new message, requests/s", ">= 60"),
    "p99_ms_16_200k": ("  p99 from request to last byte, ms", "<= 250"),
    "rps_16_200k_fresh": ("  200 KiB of new text in each request, requests/s", ""),
    "p99_ms_16_200k_fresh": ("  p99, ms", ""),
    "sse_200_intertoken_p50_ms": ("200 streams of 50 tokens/s: added inter-token p50, ms", ""),
    "sse_200_intertoken_p99_ms": ("  added inter-token p99, ms", "<= 20"),
    "sse_200_gap_p99_ms": ("  p99 between two events through the gateway, ms", ""),
    "sse_200_direct_gap_p99_ms": ("  p99 between two events straight from the engine, ms", ""),
    "sse_200_ttft_p50_ms": ("  time to first token, p50, ms", ""),
    "sse_200_ttft_p99_ms": ("  time to first token, p99, ms", "<= 50"),
    "sse_200_at_20_intertoken_p99_ms": ("200 streams of 20 tokens/s: added inter-token p99, ms", ""),
    "sse_200_at_20_ttft_p99_ms": ("  time to first token, p99, ms", ""),
    "commits_per_s": ("this disk: 4 KiB commits/s one by one, WAL and FULL", ""),
    "commit_p50_ms": ("  p50 of one commit, ms", ""),
    "commit_p99_ms": ("  p99 of one commit, ms", ""),
    "rss_start_mib": ("gateway's memory at the start, MiB", ""),
    "rss_short_mib": ("  after the turns with short prompts, MiB", ""),
    "rss_end_mib": ("  after the long prompts, MiB", ""),
    "turns": ("turns acknowledged, and found in the store after kill -9", "all"),
    "load_average": ("load average of this machine before the run", ""),
    "seconds": ("length of the run, s", ""),
}
"""Every figure, what it is called in the table, and the bar it has to pass where there is one."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: how long its phases take, what they found, and which turns were acknowledged to a client."""

    quick: bool
    figures: dict[str, float] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)

    def seconds(self, normally: float) -> float:
        return normally / 6 if self.quick else normally

    def kept(self, answers: list[Answer]) -> list[Answer]:
        """The answers, whose turns must be found in the store at the end."""
        self.turns += [answer.header("X-OpenClaw-RL-Turn") for answer in answers]
        return answers

    def note(self, **figures: float) -> None:
        self.figures.update({name: round(value, 2) for name, value in figures.items()})

    def audit(self, system: System) -> None:
        """Kills the system and compares what it acknowledged with what is on disk."""
        system.kill()
        stored = system.stored_turns()
        missing = set(self.turns) - stored
        if missing or len(set(self.turns)) != len(self.turns) or len(stored) != len(self.turns):
            raise LoadError(
                f"{len(self.turns)} answers under {len(set(self.turns))} names were acknowledged, {len(stored)} turns "
                f"are stored, {len(missing)} acknowledged ones are missing"
            )
        self.note(turns=self.figures.get("turns", 0) + len(stored))
        self.turns.clear()


async def peak(
    run: Run, connections: Sequence[Connection], make: Make, *, windows: int = 3
) -> tuple[float, list[Answer]]:
    """The best of some windows of 3 s (quick: 1 s) each, after a short warm-up; and all answers in them."""
    window_s = 1.0 if run.quick else 3.0  # not shorter: answers come in groups, as they are committed
    run.kept(await closed_loop(connections, make, seconds=window_s / 3))
    begin = time.perf_counter()
    answers = run.kept(await closed_loop(connections, make, seconds=windows * window_s))
    return best_rate(answers, begin=begin, window_s=window_s, num_windows=windows), answers


async def measure_peaks(run: Run, system: System, chat: Chat) -> None:
    """64 connections, closed loop: as fast as it goes."""
    connections = await connect(system.address, NUM_CONNECTIONS)

    def make(_: int) -> bytes:
        return chat.request(prompts.opening())

    await peak(run, connections, make, windows=1)
    before = system.cpu()
    rps, answers = await peak(run, connections, make, windows=5)
    spent, begin = system.cpu() - before, min(answer.due_at for answer in answers)
    num = len(answers) * 16 / 15  # the warm-up, a fifteenth as long, was paid for as well
    run.note(
        rps_64=rps,
        rps_64_mean=len(answers) / (answers[-1].ended_at - begin),
        p99_ms_64=_ms(answers, 99),
        cpu_ms_gateway=1000 * spent.gateway / num,
        cpu_ms_engine=1000 * spent.engine / num,
        cpu_ms_generator=1000 * spent.generator / num,
    )
    rps, _ = await peak(run, connections, lambda i: chat.next_turn(i, new=512, most=16 * KIB))
    run.note(rps_64_session=rps)
    rps, _ = await peak(run, connections, lambda _: chat.request([prompts.said(prompts.prose(4 * KIB))]))
    run.note(rps_64_fresh=rps)
    _close(connections)


async def measure_added(run: Run, system: System, chat: Chat, direct: Direct, *, num: int, per_s: float) -> None:
    """The same paced load through the gateway and straight to the engine, in turns; medians over the rounds."""
    through = await connect(system.address, num)
    straight = await connect(system.engine_socket, num)
    ready = cycle([direct.request(prompts.opening()) for _ in range(NUM_CONNECTIONS)])
    seconds, found = run.seconds(5.0), dict[str, list[float]]()
    before = psutil.cpu_times()
    for _ in range(5):
        plain = await open_loop(straight, lambda _: next(ready), per_s=per_s, seconds=seconds)
        durable = run.kept(
            await open_loop(through, lambda _: chat.request(prompts.opening()), per_s=per_s, seconds=seconds)
        )
        for percent in (50, 99):
            with_gateway, without = _ms(durable, percent), _ms(plain, percent)
            found.setdefault(f"added_p{percent}_ms_{num}", []).append(with_gateway - without)
            found.setdefault(f"paced_p{percent}_ms_{num}", []).append(with_gateway)
            found.setdefault(f"direct_p{percent}_ms_{num}", []).append(without)
    after = psutil.cpu_times()
    stolen, idle = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0), after.idle - before.idle
    found[f"stolen_percent_{num}"] = [100 * stolen / (sum(after) - sum(before) - idle)]
    run.note(**{name: median(values) for name, values in found.items() if name in FIGURES})
    _close([*through, *straight])


async def measure_long_prompts(run: Run, system: System, chat: Chat) -> None:
    """16 agents with 200 KiB of history, and the worst case: 200 KiB that nobody has seen before."""
    connections = await connect(system.address, NUM_AGENTS)
    for _ in range(10):
        grow = (c.ask(chat.next_turn(-1 - i, new=HISTORY_BYTES // 10, most=MiB)) for i, c in enumerate(connections))
        run.kept(await asyncio.gather(*grow))
    loads: dict[str, Make] = {
        "16_200k": lambda i: chat.next_turn(-1 - i, new=256, most=MiB),
        "16_200k_fresh": lambda _: chat.request([prompts.said(prompts.prose(HISTORY_BYTES))]),
    }
    for name, make in loads.items():
        begin = time.perf_counter()
        answers = run.kept(await closed_loop(connections, make, seconds=run.seconds(9.0)))
        seconds = max(answer.ended_at for answer in answers) - begin
        run.note(**{f"rps_{name}": len(answers) / seconds, f"p99_ms_{name}": _ms(answers, 99)})
    _close(connections)


async def measure_streams(run: Run, system: System, chat: Chat, direct: Direct, *, pace: int) -> None:
    """200 streams at once, begun evenly over a second, through the gateway and straight from the engine."""
    name = "sse_200" if pace == PACES[0] else f"sse_200_at_{pace}"
    max_tokens = round(pace * run.seconds(6.0))
    straight = await connect(system.engine_socket, NUM_STREAMS)
    ready = cycle(
        [direct.request(prompts.streamed_opening(), max_tokens=max_tokens, stream=True) for _ in range(NUM_CONNECTIONS)]
    )
    plain = await open_loop(straight, lambda _: next(ready), per_s=NUM_STREAMS, seconds=1)
    through = await connect(system.address, NUM_STREAMS)
    durable = run.kept(
        await open_loop(
            through,
            lambda _: chat.request(prompts.streamed_opening(), max_tokens=max_tokens, stream=True),
            per_s=NUM_STREAMS,
            seconds=1,
        )
    )
    times = [answer.event_times(b'"delta":{"content":') for answer in durable]
    gaps, plain_gaps = _gaps(times), _gaps([answer.event_times(b'"token_ids":[') for answer in plain])
    found = {
        "ttft_p50_ms": percentile((t[0] for t in times), 50),
        "ttft_p99_ms": percentile((t[0] for t in times), 99),
        "gap_p99_ms": percentile(gaps, 99),
        "direct_gap_p99_ms": percentile(plain_gaps, 99),
        "intertoken_p50_ms": percentile(gaps, 50) - percentile(plain_gaps, 50),
        "intertoken_p99_ms": percentile(gaps, 99) - percentile(plain_gaps, 99),
    }
    run.note(**{f"{name}_{key}": 1000 * value for key, value in found.items() if f"{name}_{key}" in FIGURES})
    _close([*through, *straight])


async def measure(run: Run, directory: Path) -> None:
    """All phases. Each pace of the engine needs a system of its own."""
    began_at = time.monotonic()
    run.note(load_average=os.getloadavg()[0])
    commits, p50, p99 = commit_cost(directory, seconds=run.seconds(3.0))
    run.note(commits_per_s=commits, commit_p50_ms=p50, commit_p99_ms=p99)
    direct = Direct()
    script = f"engine.scripted.replies={json.dumps(prompts.SCRIPT)}"
    with System(directory / "fast", script) as system:
        chat = Chat(system.key)
        run.note(rss_start_mib=system.gateway_mib())
        await measure_peaks(run, system, chat)
        await measure_added(run, system, chat, direct, num=NUM_CONNECTIONS, per_s=PACED_PER_S)
        await measure_added(run, system, chat, direct, num=1, per_s=20.0)
        run.note(rss_short_mib=system.gateway_mib())
        await measure_long_prompts(run, system, chat)
        run.note(rss_end_mib=system.gateway_mib())
        run.audit(system)
    for pace in PACES:
        with System(directory / f"pace-{pace}", script, f"engine.scripted.tokens_per_s={pace}") as system:
            await measure_streams(run, system, Chat(system.key), direct, pace=pace)
            run.audit(system)
    run.note(seconds=time.monotonic() - began_at)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the gateway over the scripted engine.")
    parser.add_argument("--quick", action="store_true", help="45 s instead of 3 minutes; rougher figures")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the store lies: a disk")
    arguments = parser.parse_args()
    run = Run(quick=arguments.quick)
    try:
        require_disk(arguments.dir)
        with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.dir) as directory:
            uvloop.run(measure(run, Path(directory)))
    except LoadError as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    for name, (label, bar) in FIGURES.items():
        print(f"{name:32} {run.figures[name]:>10,.2f}  {label}{f'  ({bar})' if bar else ''}")
    if arguments.json:
        print(json.dumps(run.figures))
    return 0


def _ms(answers: Sequence[Answer], percent: float) -> float:
    return 1000 * percentile((answer.seconds for answer in answers), percent)


def _gaps(streams: Sequence[Sequence[float]]) -> list[float]:
    return [later - earlier for times in streams for earlier, later in pairwise(times)]


def _close(connections: Sequence[Connection]) -> None:
    for connection in connections:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())

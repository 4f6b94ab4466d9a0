"""Decoding while the same GPU trains: how much of each is left, and how long a reader waits for the next token.

    python benchmarks/beside.py [--json] [--quick] [--colocate [--decode-sms 32]] [--streams 1]

Both sides have the shape of Qwen3-4B with random weights in bfloat16. One decodes through the engine's graphs, token by
token, over 12,000 tokens of cache; the other takes the trainer's own steps on a session (`our_step.py`).

By default they are two processes that share the GPU by the driver's time slices. With `--colocate` they are two threads
of one process, and each has multiprocessors of its own (green contexts; `--decode-sms` of them decode).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import QWEN3_4B, parser, random_network, show
from benchmarks.gpu_decode import DEVICE, DTYPE, KV_TOKENS, Loop, Row
from benchmarks.our_step import Bench, Ours
from benchmarks.sessions import Lengths
from openclaw_rl.engine.embedded.cuda.graphs import GraphDecoder
from openclaw_rl.model.network import Network

FIGURES = {
    "decode_alone_tok_s": ("decoding alone, tokens/s", ""),
    "decode_beside_tok_s": ("decoding beside training, tokens/s", ""),
    "decode_share": ("  the share that is left", "aim 0.45"),
    "gap_p50_ms": ("  between two tokens of a stream, p50, ms", ""),
    "gap_p99_ms": ("  p99, ms", "aim 10"),
    "gap_max_ms": ("  longest, ms", ""),
    "train_alone_s": ("a training step alone, s", ""),
    "train_beside_s": ("a training step beside decoding, s", ""),
    "train_slowdown": ("  times as long", "aim 1.35"),
    "decode_sms": ("multiprocessors for decoding (0: shared by time slices)", ""),
    "seconds": ("length of the run, s", ""),
}


class Training:
    """The product's step on a session of so many turns, with three hints each."""

    def __init__(self, network: Network, num_turns: int) -> None:
        fused = Network(network.arch, network.weights, is_fused=True)
        bench = Bench(network=fused, lengths=Lengths(thinking=0), num_turns=num_turns, recompute=None, gemm_tflop_s=0.0)
        self._ours = Ours(bench)
        self._samples = bench.samples(num_turns)

    def step_s(self) -> float:
        began_at = time.perf_counter()
        self._ours.take(self._samples)
        torch.cuda.current_stream().synchronize()
        return time.perf_counter() - began_at


def gaps_s(loop: Loop, *, seconds: float) -> list[float]:
    """Decodes for so long; the time between each token and the next."""
    for _ in range(5):
        loop.step()
    found: list[float] = []
    last = time.perf_counter()
    end = last + seconds
    while last < end:
        loop.step()
        now = time.perf_counter()
        found.append(now - last)
        last = now
    return found


def decoding(network: Network, num_streams: int) -> Loop:
    """Ready to go, its graph captured on the current stream."""
    decoder = GraphDecoder(network, max_batch=num_streams, max_rank=16, num_slots=1)
    decoder.prepare((num_streams,))
    return Loop(decoder, [Row.random(network, KV_TOKENS, room=832) for _ in range(num_streams)])


def figures(
    alone: list[float], beside: list[float], trained_alone: list[float], trained_beside: list[float], num_streams: int
) -> dict[str, float]:
    ordered = sorted(beside)
    return {
        "decode_alone_tok_s": num_streams / mean(alone),
        "decode_beside_tok_s": num_streams / mean(beside),
        "decode_share": mean(alone) / mean(beside),
        "gap_p50_ms": 1000 * ordered[len(ordered) // 2],
        "gap_p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
        "gap_max_ms": 1000 * ordered[-1],
        "train_alone_s": mean(trained_alone),
        "train_beside_s": mean(trained_beside),
        "train_slowdown": mean(trained_beside) / mean(trained_alone),
    }


def colocated(arguments: argparse.Namespace) -> dict[str, float]:
    """One process, one copy of the weights, two threads on multiprocessors of their own."""
    network = random_network(QWEN3_4B, device=DEVICE, dtype=DTYPE)
    training = Training(network, arguments.turns)
    training.step_s()
    trained_alone = [training.step_s() for _ in range(2)]
    alone = gaps_s(decoding(network, arguments.streams), seconds=arguments.seconds / 2)
    decode_stream, train_stream, num_sms = split_multiprocessors(arguments.decode_sms)
    with torch.cuda.stream(decode_stream):
        loop = decoding(network, arguments.streams)
        loop.step()
    started, stopping = threading.Event(), threading.Event()
    trained_beside: list[float] = []

    def train() -> None:
        with torch.cuda.stream(train_stream):
            training.step_s()
            started.set()
            while not stopping.is_set():
                trained_beside.append(training.step_s())

    thread = threading.Thread(target=train)
    thread.start()
    started.wait()
    with torch.cuda.stream(decode_stream):
        beside = gaps_s(loop, seconds=arguments.seconds)
    stopping.set()
    thread.join()
    # The last step ended alone.
    found = figures(alone, beside, trained_alone, trained_beside[:-1] or trained_beside, arguments.streams)
    return found | {"decode_sms": num_sms}


def split_multiprocessors(wanted: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream, int]:
    """Two streams, each on its own part of the GPU, the first on (about) so many multiprocessors.

    Green contexts of the driver; torch's own wrapper gives no second, disjoint part.
    """
    try:
        driver: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise RuntimeError("--colocate needs the package cuda-bindings, which torch's CUDA wheels bring") from error

    def checked(result: Any) -> Any:
        if result[0] != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the driver cannot split the GPU: {result[0]}; run without --colocate")
        return result[1] if len(result) == 2 else result[1:]

    torch.cuda.synchronize()
    device = checked(driver.cuDeviceGet(torch.cuda.current_device()))
    whole = checked(driver.cuDeviceGetDevResource(device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, _, rest = checked(driver.cuDevSmResourceSplitByCount(1, whole, 0, wanted))
    streams: list[torch.cuda.Stream] = []
    for part in (groups[0], rest):
        plan = checked(driver.cuDevResourceGenerateDesc([part], 1))
        flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        context = checked(driver.cuGreenCtxCreate(plan, device, flags))
        made = checked(driver.cuGreenCtxStreamCreate(context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
        streams.append(torch.cuda.ExternalStream(int(made)))
    return streams[0], streams[1], groups[0].sm.smCount


def two_processes(arguments: argparse.Namespace) -> dict[str, float]:
    """This one decodes, its child trains."""
    command = [sys.executable, __file__, "--as-trainer", "--turns", str(arguments.turns)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        say, hear = _talk(child)
        try:
            trained_alone = hear()
            loop = decoding(random_network(QWEN3_4B, device=DEVICE, dtype=DTYPE), arguments.streams)
            alone = gaps_s(loop, seconds=arguments.seconds / 2)
            say("go")
            hear()  # the first step is under way
            beside = gaps_s(loop, seconds=arguments.seconds)
            say("stop")
            trained_beside = hear()
        except BaseException:
            child.kill()
            raise
    found = figures(alone, beside, trained_alone, trained_beside[:-1] or trained_beside, arguments.streams)
    return found | {"decode_sms": 0}


def _talk(child: subprocess.Popen[str]) -> tuple[Callable[[str], None], Callable[[], Any]]:
    """How to say a word to the trainer and to hear a line of JSON from it."""

    def say(word: str) -> None:
        assert child.stdin is not None
        child.stdin.write(f"{word}\n")
        child.stdin.flush()

    def hear() -> Any:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise RuntimeError("the training process ended; its messages are above")
        return json.loads(line)

    return say, hear


def be_the_trainer(num_turns: int) -> None:
    """The child: steps alone, then, from a line on stdin to the next, steps beside the parent."""
    training = Training(random_network(QWEN3_4B, device=DEVICE, dtype=DTYPE), num_turns)
    training.step_s()
    print(json.dumps([training.step_s() for _ in range(2)]), flush=True)
    sys.stdin.readline()
    stopping = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    training.step_s()
    print("[]", flush=True)
    found: list[float] = []
    while not stopping.is_set():
        found.append(training.step_s())
    print(json.dumps(found), flush=True)


def main() -> int:
    options = parser("Measure decoding beside training.")
    options.add_argument("--colocate", action="store_true", help="one process, each side on its own multiprocessors")
    options.add_argument("--decode-sms", type=int, default=32, help="with --colocate: multiprocessors for decoding")
    options.add_argument("--streams", type=int, default=1, help="rows that are decoded at once")
    options.add_argument("--turns", type=int, default=4, help="of the session that is trained on")
    options.add_argument("--as-trainer", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if not torch.cuda.is_available():
        print("beside.py needs a CUDA device, and torch sees none: there is nothing to share", file=sys.stderr)
        return 2
    if arguments.as_trainer:
        be_the_trainer(arguments.turns)
        return 0
    arguments.seconds = 4.0 if arguments.quick else 10.0
    began_at = time.monotonic()
    try:
        found = colocated(arguments) if arguments.colocate else two_processes(arguments)
    except RuntimeError as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    found["seconds"] = time.monotonic() - began_at
    show(FIGURES, found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

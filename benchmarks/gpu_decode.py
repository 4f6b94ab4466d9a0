"""Tokens per second of the decoding graphs on a GPU, against the speed at which its memory can be read.

    python benchmarks/decode.py [--json] [--quick]          (on a machine with a CUDA device; it calls this)

A model of the shape of Qwen3-4B with random weights, bfloat16, 12,000 tokens in every row's cache. A step is what a
server does for each token: fill the table, replay the graph, wait for token and log-prob, and feed the token again.
The floor is one read of all weights and of the rows' keys and values at the best speed at which a 4 GiB tensor is read
in the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import QWEN3_4B, parser, random_network, show
from openclaw_rl.engine.embedded.cuda.decode_step import DecodeStep
from openclaw_rl.engine.embedded.cuda.graphs import GraphDecoder
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import MODULES
from openclaw_rl.model.network import Network

KV_TOKENS, NUM_STREAMS, RANK = 12_000, 8, 32
DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16

FIGURES = {
    "read_tb_s": ("reading 4 GiB, best of 5, TB/s", ""),
    "floor_ms": ("one row: weights and KV at that speed, ms", ""),
    "step_ms": ("  a step, token and log-prob on the host, ms", ""),
    "tok_s": ("  tokens/s", ""),
    "share_of_floor": ("  share of the floor", ">= 0.60"),
    "logprob_extra": ("  what drawing and log-prob add to a step without them, share", "<= 0.03"),
    "lora_extra": ("  what an unmerged adapter of rank 32 adds, share", "aim 0.15"),
    "streams8_floor_ms": ("eight rows: weights and KV at that speed, ms", ""),
    "streams8_step_ms": ("  a step, ms", ""),
    "streams8_tok_s": ("  tokens/s together", ""),
    "streams8_share_of_floor": ("  share of the floor", ">= 0.75"),
    "streams8_logprob_extra": ("  what drawing and log-probs add, share", "<= 0.03"),
    "streams8_lora_extra": ("  what one adapter for all of them adds, share", "aim 0.15"),
    "streams8_lora4_extra": ("  what four different adapters add, share", ""),
    "adapter_load_ms": ("an adapter of rank 32 onto the device, ms", ""),
    "capture_s": ("compiling and capturing the four graphs used here, s", ""),
    "seconds": ("length of the run, s", ""),
}


@dataclass(slots=True)
class Row:
    """A strand of random keys and values."""

    kv: Tensor
    length: int

    @classmethod
    def random(cls, network: Network, length: int, *, room: int) -> Row:
        arch = network.arch
        shape = (arch.num_layers, 2, arch.num_kv_heads, length + room, arch.head_dim)
        return cls(torch.randn(shape, device=network.device, dtype=network.dtype), length)


class Loop:
    """Decodes rows on and on: each step reads the tokens that the step before drew."""

    def __init__(self, decoder: GraphDecoder, rows: Sequence[Row], slots: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._rows = rows
        self._slots = slots or [0] * len(rows)
        self._start = [row.length for row in rows]
        self._tokens = [1] * len(rows)

    def step(self) -> None:
        num_rows = len(self._rows)
        if self._rows[0].length + 1 >= self._rows[0].kv.shape[3]:
            self._rewind()
        self._tokens, _ = self._decoder.decode_and_draw(
            self._rows, self._tokens, self._slots, [1.0] * num_rows, [0.5] * num_rows
        )
        for row in self._rows:
            row.length += 1

    def mean_s(self, num_steps: int) -> float:
        """Of one step, after a few that warm up."""
        for _ in range(5):
            self.step()
        began_at = time.perf_counter()
        for _ in range(num_steps):
            self.step()
        took = (time.perf_counter() - began_at) / num_steps
        self._rewind()
        return took

    def _rewind(self) -> None:
        for row, length in zip(self._rows, self._start, strict=True):
            row.length = length


def read_bytes_per_s() -> float:
    block = torch.randn(2**30, device=DEVICE)
    best = min(gpu_s(block.sum) for _ in range(5))
    return 4 * 2**30 / best


def gpu_s(work: Callable[[], object], *, repeats: int = 5) -> float:
    """How long the device takes for it."""
    work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    elapsed_ms: float = begin.elapsed_time(end)
    return elapsed_ms / repeats / 1000


def floor_bytes(network: Network, num_rows: int) -> int:
    """All that a step must read: the head is the embedding, of which one row more is too little to count."""
    arch = network.arch
    projections = sum(part.out_features * part.in_features for module in MODULES for part in arch.projections(module))
    weights = arch.num_layers * projections + arch.vocab_size * arch.hidden_size
    cache = num_rows * KV_TOKENS * 2 * arch.num_layers * arch.num_kv_heads * arch.head_dim
    return (weights + cache) * network.dtype.itemsize


def draw_s(network: Network, num_rows: int) -> float:
    """Drawing and log-probs alone, in a graph as in a step."""
    step = DecodeStep(network, max_batch=num_rows, max_rank=16, max_adapters=1)
    step.logits_BV.normal_()
    step.draw(num_rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            step.draw(num_rows)
    return gpu_s(graph.replay) / 20


def random_adapter(network: Network, seed: int) -> AdapterWeights:
    return AdapterWeights.random(
        network.arch, rank=RANK, alpha=2 * RANK, seed=seed, b_std=0.002, device=network.device, dtype=network.dtype
    )


@torch.no_grad()
def measure(*, num_steps: int) -> dict[str, float]:
    speed = read_bytes_per_s()
    network = random_network(QWEN3_4B, device=DEVICE, dtype=DTYPE)
    decoder = GraphDecoder(network, max_batch=NUM_STREAMS, max_rank=128, num_slots=4)
    adapters = [random_adapter(network, seed) for seed in range(4)]
    began_at = time.perf_counter()
    slots = [decoder.load_adapter(adapter) for adapter in adapters]
    load_s = (time.perf_counter() - began_at) / len(slots)
    began_at = time.perf_counter()
    for lora in (False, True):
        decoder.prepare((1, NUM_STREAMS), lora=lora)
    found = {
        "read_tb_s": speed / 1e12,
        "adapter_load_ms": 1000 * load_s,
        "capture_s": time.perf_counter() - began_at,
    }
    rows = [Row.random(network, KV_TOKENS, room=832) for _ in range(NUM_STREAMS)]
    for prefix, num_rows in (("", 1), ("streams8_", NUM_STREAMS)):
        chosen = rows[:num_rows]
        # In turn, so that what else the machine does hits all of them.
        plain, worn, mixed = [], [], []
        for _ in range(3):
            plain.append(Loop(decoder, chosen).mean_s(num_steps))
            worn.append(Loop(decoder, chosen, slots[:1] * num_rows).mean_s(num_steps))
            mixed.append(Loop(decoder, chosen, (slots * 2)[:num_rows]).mean_s(num_steps))
        step_s, floor_s, drawing_s = min(plain), floor_bytes(network, num_rows) / speed, draw_s(network, num_rows)
        found |= {
            f"{prefix}floor_ms": 1000 * floor_s,
            f"{prefix}step_ms": 1000 * step_s,
            f"{prefix}tok_s": num_rows / step_s,
            f"{prefix}share_of_floor": floor_s / step_s,
            f"{prefix}logprob_extra": drawing_s / (step_s - drawing_s),
            f"{prefix}lora_extra": min(worn) / step_s - 1,
        }
        if num_rows > 1:
            found[f"{prefix}lora4_extra"] = min(mixed) / step_s - 1
    return found


def main() -> int:
    arguments = parser("Measure decoding on a GPU.").parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: run benchmarks/decode.py, which measures the CPU", file=sys.stderr)
        return 2
    began_at = time.monotonic()
    found = measure(num_steps=50 if arguments.quick else 200)
    found["seconds"] = time.monotonic() - began_at
    show(FIGURES, found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

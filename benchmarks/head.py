"""What log-probs and top-k of hidden states cost with their gradient: the fused head against plain torch.

    python benchmarks/head.py [--json] [--quick] [--threads N]      on a CPU, about 2 minutes on two cores
    python benchmarks/head.py --device cuda [--json]                on a GPU, below a minute

Every side is given the same hidden states [T, H], the head's weights [V, H] and one token a row, finds the best four
tokens, and gives the log-probs of all five with their gradient. `hidden`: only the hidden states have a gradient, as
with a LoRA; `weights`: the head learns too. On a GPU Qwen3-4B's head in bfloat16, on a CPU a small one's in float32.

    naive    all logits -> float32 -> log-softmax -> top-k -> gather
    chunked  the same in chunks of rows that are computed again for the gradient (torch.utils.checkpoint)
    fused    the product's `FusedRows`
    liger    Liger's fused linear cross entropy, where it is installed: one token a row, no top-k

The floor is the products of matrices alone, in chunks of 2,048 rows, with outputs as narrow as the inputs: logits, the
same again, the gradient of the hidden states and, where it learns, of the weights. Extra memory is what the peak has
above the inputs; the gradient of the hidden states counts, that of the weights does not. On a CPU it is resident
memory, each side in a process of its own. Times are the best of some runs. Ends with status 1 if naive or fused failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "0")  # as the trainer's worker sets it; before torch is loaded

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import parser, show
from openclaw_rl.train.head.chunks import slices
from openclaw_rl.train.head.rows import FusedRows, HeadWeights

TOP_K = 4
FLOOR_ROWS = 2048

Side = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(hidden [T, H], weight [V, H], ids [T, 1]) -> log-probs [T, J] with their gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured on a kind of device."""

    lengths: tuple[int, ...]
    num_dims: int
    num_tokens: int
    dtype: torch.dtype
    chunk_rows: int
    """Of the chunked opponent."""
    kinds: tuple[str, ...]
    num_runs: int


SETTINGS = {
    "cpu": Setting(
        lengths=(8192,),
        num_dims=576,
        num_tokens=49_152,
        dtype=torch.float32,
        chunk_rows=512,
        kinds=("hidden",),
        num_runs=2,
    ),
    "cuda": Setting(
        lengths=(2048, 8192, 32_768),
        num_dims=2560,
        num_tokens=151_936,
        dtype=torch.bfloat16,
        chunk_rows=2048,
        kinds=("hidden", "weights"),
        num_runs=4,
    ),
}


def naive(hidden_TH: Tensor, weight_VH: Tensor, ids_T1: Tensor) -> Tensor:
    logprobs_TV = torch.log_softmax((hidden_TH @ weight_VH.T).float(), dim=-1)
    best_TK = logprobs_TV.detach().topk(TOP_K, dim=-1).indices
    return logprobs_TV.gather(-1, torch.cat((ids_T1, best_TK), dim=-1))


def chunked(hidden_TH: Tensor, weight_VH: Tensor, ids_T1: Tensor) -> Tensor:
    rows = SETTINGS[hidden_TH.device.type].chunk_rows
    parts: list[Tensor] = []
    for start, stop in slices(len(hidden_TH), rows):
        part = checkpoint(naive, hidden_TH[start:stop], weight_VH, ids_T1[start:stop], use_reentrant=False)
        assert isinstance(part, Tensor)
        parts.append(part)
    return torch.cat(parts)


def fused(hidden_TH: Tensor, weight_VH: Tensor, ids_T1: Tensor) -> Tensor:
    rows = FusedRows(hidden_TH, HeadWeights(weight=weight_VH))
    best_TK, _ = rows.top_k(TOP_K)
    return rows.logprob(torch.cat((ids_T1, best_TK), dim=-1))


def liger(hidden_TH: Tensor, weight_VH: Tensor, ids_T1: Tensor) -> Tensor:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss  # type: ignore[import-not-found]

    loss: Tensor = LigerFusedLinearCrossEntropyLoss(reduction="sum")(weight_VH, hidden_TH, ids_T1.squeeze(-1))
    return -loss


SIDES: Mapping[str, Side] = {"naive": naive, "chunked": chunked, "fused": fused, "liger": liger}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one side."""

    forward_ms: float
    whole_ms: float
    extra_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What every side is given."""

    hidden: Tensor
    weight: Tensor
    ids: Tensor

    @classmethod
    def random(cls, setting: Setting, length: int, kind: str, device: torch.device) -> Inputs:
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int, scale: float) -> Tensor:
            made = torch.empty(shape, dtype=setting.dtype, device=device)
            return made.normal_(0, scale, generator=generator)

        return cls(
            hidden=normal(length, setting.num_dims, scale=1.0).requires_grad_(),
            weight=normal(setting.num_tokens, setting.num_dims, scale=0.02).requires_grad_(kind == "weights"),
            ids=torch.randint(setting.num_tokens, (length, 1), generator=generator, device=device),
        )

    def head(self, num_rows: int) -> Inputs:
        return Inputs(
            hidden=self.hidden[:num_rows].detach().requires_grad_(), weight=self.weight, ids=self.ids[:num_rows]
        )

    def forget(self) -> None:
        self.hidden.grad = self.weight.grad = None


def forward_s(side: Side, inputs: Inputs) -> float:
    inputs.forget()
    began_at = now(inputs.hidden.device)
    side(inputs.hidden, inputs.weight, inputs.ids)
    return now(inputs.hidden.device) - began_at


def there_and_back_s(side: Side, inputs: Inputs) -> float:
    """As training runs it: nobody waits for the GPU between the two."""
    inputs.forget()
    began_at = now(inputs.hidden.device)
    side(inputs.hidden, inputs.weight, inputs.ids).sum().backward()
    return now(inputs.hidden.device) - began_at


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(side: Side, inputs: Inputs, num_runs: int) -> Cost:
    """After one run to warm up, on a CPU a short one."""
    there_and_back_s(side, inputs if inputs.hidden.is_cuda else inputs.head(64))
    inputs.forget()
    gc.collect()
    if inputs.hidden.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = resident("VmRSS")
    forward = min(forward_s(side, inputs) for _ in range(num_runs))
    whole = min(there_and_back_s(side, inputs) for _ in range(num_runs))
    if inputs.hidden.is_cuda:
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resident(
            "VmHWM"
        )  # not ru_maxrss, where the parent's memory counts from before the child's program began
    extra = peak - before - (inputs.weight.nbytes if inputs.weight.requires_grad else 0)
    inputs.forget()
    return Cost(1000 * forward, 1000 * whole, extra / 2**30)


def resident(name: str) -> int:
    """Bytes of a line like `VmRSS:  123456 kB`; on Linux."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


@torch.no_grad()
def floor_ms(inputs: Inputs, num_runs: int) -> float:
    """The products of matrices alone."""
    weight_VH = inputs.weight.detach()
    rows = min(FLOOR_ROWS, len(inputs.hidden))
    logits_CV = weight_VH.new_empty(rows, len(weight_VH))
    grad_CH = weight_VH.new_empty(rows, weight_VH.shape[-1])
    grad_VH = torch.empty_like(weight_VH) if inputs.weight.requires_grad else None

    def chunk(hidden_CH: Tensor) -> None:
        for _ in range(2):
            torch.mm(hidden_CH, weight_VH.T, out=logits_CV)
        torch.mm(logits_CV, weight_VH, out=grad_CH)
        if grad_VH is not None:
            torch.mm(logits_CV.T, hidden_CH, out=grad_VH)

    took: list[float] = []
    for _ in range(num_runs + 1):
        began_at = now(weight_VH.device)
        for start, stop in slices(len(inputs.hidden), rows):
            chunk(inputs.hidden[start:stop])
        took.append(now(weight_VH.device) - began_at)
    return 1000 * min(took[1:])


def cost_of(name: str, setting: Setting, length: int, kind: str, arguments: argparse.Namespace) -> Cost | None:
    """None, with the reason on the screen, where a side cannot run."""
    device = torch.device(arguments.device)
    if device.type == "cpu":
        command = [sys.executable, __file__, "--device", "cpu", "--as", name, "--length", str(length), "--kind", kind]
        command += ["--quick"] if arguments.quick else []
        command += [] if arguments.threads is None else ["--threads", str(arguments.threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return Cost(**json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None
    try:
        return measure(SIDES[name], Inputs.random(setting, length, kind, device), runs_of(setting, arguments))
    except torch.OutOfMemoryError:
        print(f"{name}, {length} rows: out of memory", file=sys.stderr)
        return None
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def floor_of(setting: Setting, length: int, kind: str, arguments: argparse.Namespace) -> float:
    """On a CPU of one chunk, times their number: it takes the same for each."""
    device = torch.device(arguments.device)
    measured = min(FLOOR_ROWS, length) if device.type == "cpu" else length
    inputs = Inputs.random(setting, measured, kind, device)
    return floor_ms(inputs, runs_of(setting, arguments)) * length / measured


def runs_of(setting: Setting, arguments: argparse.Namespace) -> int:
    return 1 if arguments.quick else setting.num_runs


def sides_here(device: str) -> list[str]:
    names = [name for name in SIDES if name != "liger"]
    if device != "cuda":
        print("liger: left out, it needs a GPU")
        return names
    if find_spec("liger_kernel") is None:
        print("liger: left out, it is not installed")
        return names
    return [*names, "liger"]


FIGURES = {
    "time_vs_naive": ("naive's time over ours, there and back, at its worst length", "> 1 on a GPU"),
    "memory_vs_naive": ("naive's extra memory over ours, at its worst length", ">= 6 on a CPU"),
    "floor_ratio": ("our time over three products of matrices, at its worst length", "<= 1.35 on a GPU"),
    "extra_gib": ("our extra memory, GiB, at its worst length", "<= 1"),
    "weights_time_vs_naive": ("the same where the head learns: naive's time over ours", ""),
    "weights_memory_vs_naive": ("  naive's extra memory over ours", ""),
    "weights_floor_ratio": ("  our time over four products of matrices", ""),
    "weights_extra_gib": ("  our extra memory, GiB", ""),
    "seconds": ("length of the run, s", ""),
}


def measure_kind(kind: str, names: list[str], setting: Setting, arguments: argparse.Namespace) -> dict[str, float]:
    """Prints a line for each side and length; the figures are those of the worst length."""
    worst: dict[str, list[float]] = {"time_vs_naive": [], "memory_vs_naive": [], "floor_ratio": [], "extra_gib": []}
    for length in setting.lengths:
        floor = floor_of(setting, length, kind, arguments)
        costs = {name: cost_of(name, setting, length, kind, arguments) for name in names}
        first, ours = costs["naive"], costs["fused"]
        for name, cost in costs.items():
            if cost is None:
                print(f"{length:>7} {kind:8} {name:8}  could not be measured")
                continue
            times = f"{cost.forward_ms:>11,.2f} {cost.whole_ms:>13,.2f} {cost.extra_gib:>10.2f}"
            beside = f"{first.whole_ms / cost.whole_ms:>9.2f}" if first else " " * 9
            print(f"{length:>7} {kind:8} {name:8} {times} {beside} {cost.whole_ms / floor:>9.2f}", flush=True)
        if ours is not None:
            worst["floor_ratio"].append(ours.whole_ms / floor)
            worst["extra_gib"].append(ours.extra_gib)
        if ours is not None and first is not None:
            worst["time_vs_naive"].append(first.whole_ms / ours.whole_ms)
            worst["memory_vs_naive"].append(first.extra_gib / ours.extra_gib)
    pick = {"time_vs_naive": min, "memory_vs_naive": min, "floor_ratio": max, "extra_gib": max}
    prefix = "" if kind == "hidden" else f"{kind}_"
    return {f"{prefix}{name}": pick[name](values) for name, values in worst.items() if values}


def main() -> int:
    options = parser("Measure the head: log-probs, top-k and their gradient.")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--as", dest="side", choices=tuple(SIDES), default=None, help=argparse.SUPPRESS)
    options.add_argument("--length", type=int, default=None, help=argparse.SUPPRESS)
    options.add_argument("--kind", default="hidden", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    setting = SETTINGS[arguments.device]
    if arguments.side is not None:
        inputs = Inputs.random(setting, arguments.length, arguments.kind, torch.device(arguments.device))
        cost = measure(SIDES[arguments.side], inputs, runs_of(setting, arguments))
        print(json.dumps({name: getattr(cost, name) for name in Cost.__slots__}))
        return 0
    began_at = time.perf_counter()
    print(f"V = {setting.num_tokens:,}, H = {setting.num_dims:,}, k = {TOP_K}, {setting.dtype}")
    names = sides_here(arguments.device)
    print("   rows gradient side      forward ms  and back, ms  extra GiB  vs naive  vs floor")
    found: dict[str, float] = {}
    for kind in setting.kinds:
        found |= measure_kind(kind, names, setting, arguments)
    found["seconds"] = time.perf_counter() - began_at
    show(FIGURES, found, as_json=arguments.json)
    return 0 if {"floor_ratio", "time_vs_naive"} <= found.keys() else 1


if __name__ == "__main__":
    sys.exit(main())

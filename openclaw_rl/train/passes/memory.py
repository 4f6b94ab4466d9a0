"""A network's shape and the free memory -> how much of a pass is kept, and how many tokens fit into one.

A pass forward and backward takes `fixed_bytes` + tokens · `bytes_per_token`. Both are sums over what is really stored;
nothing is guessed but a margin for the allocator's gaps and the kernels' workspaces. Attention is taken to store q, k,
v, its output and one float32 for each head and token. Knows no sample, no tree and no head: what those take is passed
in. What is no pure function of numbers are `free_bytes` and `plan`, which ask the machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from openclaw_rl.model.architecture import Architecture
from openclaw_rl.train.passes.activations import Keep, Kept

MARGIN = 0.1
"""The share of the free memory that stays free."""
MARGIN_OF_ALL = 0.5
"""The same where everything is kept: by a prototype 8 % faster than with attention alone, in 2.5 times the memory."""

ON_DEVICE: tuple[Kept, ...] = (Kept(keep="all"), Kept(keep="attention"), Kept(keep="nothing"))
"""What may be kept, the fastest first."""
WITH_HOST: tuple[Kept, ...] = (*ON_DEVICE, Kept(keep="attention", offload=True), Kept(keep="nothing", offload=True))
"""A GPU computes a layer again about as fast as its activations come back from the host, so these come last."""
_HOST_SHARE = 0.5
"""Of a host's free memory, for a pass on its CPU: other programs run beside it."""

_FLOAT = torch.float32.itemsize
_NO_LIMIT = 1 << 62


def kept_per_layer(arch: Architecture, keep: Keep, dtype: torch.dtype, *, learns_all: bool, is_fused: bool) -> int:
    """Bytes that one token leaves in one layer for the backward pass. A rank's few numbers per token are left out."""
    hidden, inner, query, kv = arch.hidden_size, arch.mlp_size, arch.query_size, arch.kv_size
    if keep == "nothing":
        return hidden * dtype.itemsize  # x
    numbers = hidden + (query + 2 * kv) + query  # x; q, k, v; what was attended to
    floats = arch.num_heads  # the log-sum-exp
    if keep == "all":
        numbers += 3 * hidden  # the input of qkv, x behind attention, the input of gate_up
        numbers += 3 * inner  # gate_up and the input of down
        floats += 2  # the norms' reciprocal roots
        if arch.qk_norm:
            numbers += query + 2 * kv  # q and k before their norms, in one piece with v
            floats += arch.num_heads + arch.num_kv_heads
        if not is_fused:
            numbers += inner  # silu(gate)
            numbers += -kv if arch.qk_norm else query + kv  # v is no copy but a part of its projection's output
            if learns_all:  # what the norms' weights multiply
                numbers += 2 * hidden + (query + kv if arch.qk_norm else 0)
    return numbers * dtype.itemsize + floats * _FLOAT


def bytes_per_token(
    arch: Architecture, kept: Kept, dtype: torch.dtype, *, learns_all: bool, is_fused: bool = False
) -> int:
    """Of the device's memory, at the moment of a pass forward and backward that takes most."""
    everything = kept_per_layer(arch, "all", dtype, learns_all=learns_all, is_fused=is_fused)
    mine = kept_per_layer(arch, kept.keep, dtype, learns_all=learns_all, is_fused=is_fused)
    waiting = mine * (1 if kept.offload else arch.num_layers)  # an offloaded layer is back while its gradient is made
    again = everything - mine  # one layer at a time
    qkv = arch.query_size + 2 * arch.kv_size
    # The gradients at the two widest places of a layer (of gate_up and its product; of qkv, before and behind the turn,
    # and of what was attended to), and on the way past them: of x, of a norm's output, and their sum.
    gradients = max(3 * arch.mlp_size, 2 * qkv + arch.query_size) + 3 * arch.hidden_size
    ends = 3 * arch.hidden_size + 2 * arch.head_dim  # the last layer's output, its norm and that one's gradient; rope
    return waiting + again + (gradients + ends) * dtype.itemsize


def host_bytes_per_token(
    arch: Architecture, kept: Kept, dtype: torch.dtype, *, learns_all: bool, is_fused: bool = False
) -> int:
    """Of the host's memory, for what is offloaded."""
    if not kept.offload:
        return 0
    mine = kept_per_layer(arch, kept.keep, dtype, learns_all=learns_all, is_fused=is_fused)
    return 2 * mine * arch.num_layers  # pinned memory comes in powers of two


def fixed_bytes(num_learning: int, dtype: torch.dtype, *, learns_all: bool) -> int:
    """What a step takes besides its tokens, for so many numbers that learn: gradients and the optimiser's two moments.

    An adapter learns in float32 and is worn in the network's dtype.
    """
    if learns_all:
        return 3 * num_learning * dtype.itemsize
    return num_learning * (2 * dtype.itemsize + 3 * _FLOAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How to run a pass."""

    kept: Kept
    max_tokens: int
    """So many fit with it."""


def choose(
    arch: Architecture,
    dtype: torch.dtype,
    *,
    num_tokens: int,
    free: int,
    free_on_host: int = 0,
    learns_all: bool = False,
    is_fused: bool = False,
    ways: Sequence[Kept] = ON_DEVICE,
) -> MemoryPlan:
    """The first way in which `num_tokens` tokens fit into `free` bytes; the one that takes most if there is none."""
    plans: list[MemoryPlan] = []
    for kept in ways:
        per_token = bytes_per_token(arch, kept, dtype, learns_all=learns_all, is_fused=is_fused)
        most = _fit(free, per_token, margin=MARGIN if kept.keep != "all" else MARGIN_OF_ALL)
        if kept.offload:
            away = host_bytes_per_token(arch, kept, dtype, learns_all=learns_all, is_fused=is_fused)
            most = min(most, _fit(free_on_host, away, margin=MARGIN))
        plans.append(MemoryPlan(kept=kept, max_tokens=most))
        if most >= num_tokens:
            return plans[-1]
    return max(plans, key=lambda plan: plan.max_tokens)


def _fit(free: int, per_token: int, *, margin: float) -> int:
    return max(0, int(free * (1 - margin)) // per_token)


def plan(
    arch: Architecture,
    dtype: torch.dtype,
    device: torch.device,
    num_tokens: int,
    *,
    reserved: int,
    learns_all: bool = False,
    is_fused: bool = False,
    ways: Sequence[Kept] = ON_DEVICE,
    num_sharing: int = 1,
) -> MemoryPlan:
    """`choose` for what is free now, less what is `reserved`: `fixed_bytes` of what is not there yet, the head's.

    `num_sharing` processes plan with the same memory.
    """
    share = (1.0 if device.type == "cuda" else _HOST_SHARE) / num_sharing
    return choose(
        arch,
        dtype,
        num_tokens=num_tokens,
        free=int(share * free_bytes(device)) - reserved,
        free_on_host=int(_HOST_SHARE * host_free_bytes()) // num_sharing,
        learns_all=learns_all,
        is_fused=is_fused,
        ways=ways,
    )


def free_bytes(device: torch.device) -> int:
    """What this process could still take on a device: what nobody has, and what its allocator holds without use."""
    if device.type != "cuda":
        return host_free_bytes()
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def host_free_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """What the kernel calls available, or less where a control group (version 2) of this process has a limit."""
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # no Linux
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return min([available, *(_free_in(group) for group in _groups(proc, cgroups))])


def _groups(proc: Path, cgroups: Path) -> list[Path]:
    """The control groups of this process, its own first; the root alone where it cannot see its own."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    path = cgroups / own
    return [path, *(parent for parent in path.parents if parent.is_relative_to(cgroups))]


def _free_in(group: Path) -> int:
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # no limit ("max"), or no such group
        return _NO_LIMIT
    return max(0, limit - used + int(stat.get("inactive_file", 0)))  # files' pages that the kernel would drop

"""What the formulas say a pass stores is what torch stores; and plans follow from the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor

from openclaw_rl.train.passes.activations import Keep, Kept
from openclaw_rl.train.passes.lora import LearnedLora
from openclaw_rl.train.passes.memory import (
    MARGIN,
    MARGIN_OF_ALL,
    ON_DEVICE,
    WITH_HOST,
    bytes_per_token,
    choose,
    fixed_bytes,
    free_bytes,
    host_bytes_per_token,
    host_free_bytes,
    kept_per_layer,
    plan,
)
from tests.factories.networks import CPU, causal, compiled, random_adapter, random_network, shape
from tests.factories.oracle import some_ids

KEEPS: tuple[Keep, ...] = ("all", "attention", "nothing")
NUM_TOKENS = 37
GIB = 1 << 30
QWEN3_4B = shape(
    "qwen3", num_layers=36, hidden_size=2560, mlp_size=9728, num_heads=32, num_kv_heads=8, head_dim=128, vocab_size=9
)


def saved_bytes(
    num_layers: int, family: Literal["llama", "qwen3"], keep: Keep, *, learns_all: bool, fused: bool
) -> int:
    """Of all storages that autograd really holds of so many tokens, each counted once; rope's are no layer's."""
    arch = shape(family, num_layers=num_layers)
    network = random_network(arch, learns=learns_all)
    if fused:
        network._elementwise = compiled()
    lora = None
    if not learns_all:
        adapter = random_adapter(arch, rank=1)
        lora = LearnedLora(adapter.over(adapter.flat.requires_grad_() * 1))
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if NUM_TOKENS in tensor.shape:
            found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network.hidden(some_ids(NUM_TOKENS), torch.arange(NUM_TOKENS), causal, lora, Kept(keep=keep))
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # both are of torch, while it compiles
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("learns_all", [False, True])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_layer_stores_what_the_formula_says(
    family: Literal["llama", "qwen3"], keep: Keep, learns_all: bool, fused: bool
) -> None:
    sizes = [saved_bytes(layers, family, keep, learns_all=learns_all, fused=fused) for layers in (2, 4)]
    stored = (sizes[1] - sizes[0]) / 2 / NUM_TOKENS
    said = kept_per_layer(shape(family), keep, torch.float32, learns_all=learns_all, is_fused=fused)
    assert said == pytest.approx(stored, rel=0.02)  # an adapter's few numbers


def test_a_known_shape() -> None:
    """Measured on an H200 with 27,000 tokens: 109 GiB with all kept, of which 7.5 are the weights."""
    need = {
        keep: bytes_per_token(QWEN3_4B, Kept(keep=keep), torch.bfloat16, learns_all=False, is_fused=True)
        for keep in KEEPS
    }
    assert need["all"] * 27_000 / GIB == pytest.approx(102, rel=0.04)
    assert need["nothing"] < 0.12 * need["all"]
    assert need["nothing"] < need["attention"] < 0.3 * need["all"]
    wide = bytes_per_token(QWEN3_4B, Kept(keep="all"), torch.float32, learns_all=False, is_fused=True)
    assert wide == pytest.approx(2 * need["all"], rel=0.01)


def test_what_is_offloaded_is_on_the_host_and_not_on_the_device() -> None:
    def device(kept: Kept) -> int:
        return bytes_per_token(QWEN3_4B, kept, torch.bfloat16, learns_all=False, is_fused=True)

    def host(kept: Kept) -> int:
        return host_bytes_per_token(QWEN3_4B, kept, torch.bfloat16, learns_all=False, is_fused=True)

    for keep in KEEPS:
        here, away = Kept(keep=keep), Kept(keep=keep, offload=True)
        layer = kept_per_layer(QWEN3_4B, keep, torch.bfloat16, learns_all=False, is_fused=True)
        assert device(here) - device(away) == 35 * layer
        assert host(here) == 0
        assert host(away) >= 36 * layer
    # Whatever is kept, one whole layer is there at a time.
    assert len({device(Kept(keep=keep, offload=True)) for keep in KEEPS}) == 1


def test_gradients_and_moments() -> None:
    assert fixed_bytes(1_000, torch.bfloat16, learns_all=True) == 3 * 2 * 1_000
    assert fixed_bytes(1_000, torch.bfloat16, learns_all=False) == (2 + 2 + 4 + 8) * 1_000


def chosen(free_gib: float, num_tokens: int = 27_000, *, host_gib: float = 0) -> Kept:
    return choose(
        QWEN3_4B,
        torch.bfloat16,
        num_tokens=num_tokens,
        free=int(free_gib * GIB),
        free_on_host=int(host_gib * GIB),
        is_fused=True,
        ways=WITH_HOST if host_gib else ON_DEVICE,
    ).kept


def test_the_least_is_computed_again_that_fits() -> None:
    assert chosen(250) == Kept(keep="all")
    assert chosen(130) == Kept(keep="attention")
    assert chosen(20) == Kept(keep="nothing")
    assert chosen(8) == Kept(keep="nothing"), "what takes most tokens, though too few"
    assert chosen(8, host_gib=200) == Kept(keep="attention", offload=True)
    assert chosen(8, host_gib=12) == Kept(keep="nothing", offload=True)
    assert chosen(100, host_gib=200) == Kept(keep="attention"), "the host is for what fits nowhere else"


@pytest.mark.parametrize("free_gib", [0.5, 7, 33, 120])
@pytest.mark.parametrize("num_tokens", [1, 5_000, 60_000])
def test_a_plan_fits_with_its_margin(free_gib: float, num_tokens: int) -> None:
    free = int(free_gib * GIB)
    made = choose(QWEN3_4B, torch.bfloat16, num_tokens=num_tokens, free=free)
    per_token = bytes_per_token(QWEN3_4B, made.kept, torch.bfloat16, learns_all=False)
    margin = MARGIN_OF_ALL if made.kept.keep == "all" else MARGIN
    assert made.max_tokens * per_token <= (1 - margin) * free < (made.max_tokens + 1) * per_token


def test_nothing_free_is_no_token() -> None:
    assert choose(QWEN3_4B, torch.bfloat16, num_tokens=1, free=-5).max_tokens == 0


def test_a_plan_for_this_machine() -> None:
    made = plan(shape("llama"), torch.float32, CPU, 100, reserved=0)
    assert made.kept == Kept(keep="all")
    assert made.max_tokens > 100
    assert plan(shape("llama"), torch.float32, CPU, 100, reserved=1 << 60).max_tokens == 0


def test_this_machine_has_memory() -> None:
    assert 0 < free_bytes(CPU) < 1 << 50


def machine(root: Path, *, groups: dict[str, tuple[str, int, int]], own: str) -> tuple[Path, Path]:
    """A /proc with 8,000 KiB available, and control groups: limit, used, of it files that can be dropped."""
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:       16000 kB\nMemFree:         100 kB\nMemAvailable:    8000 kB\n")
    (proc / "self" / "cgroup").write_text(f"1:name=systemd:/elsewhere\n0::/{own}\n")
    cgroups.mkdir()
    for name, (limit, used, files) in groups.items():
        folder = cgroups / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")
    return proc, cgroups


def test_without_a_limit_the_kernels_word_counts(tmp_path: Path) -> None:
    assert host_free_bytes(*machine(tmp_path, groups={}, own="")) == 8000 * 1024


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    assert host_free_bytes(*machine(tmp_path, groups={"": ("max", 9_000_000, 0)}, own="")) == 8000 * 1024


@pytest.mark.parametrize("limited", ["", "a", "a/b"])
def test_the_nearest_limit_above_counts(tmp_path: Path, limited: str) -> None:
    groups = dict.fromkeys(("a/b", "a", ""), ("max", 1, 0)) | {limited: ("5000", 4000, 300)}
    assert host_free_bytes(*machine(tmp_path, groups=groups, own="a/b")) == 1300


def test_a_group_beside_does_not_count(tmp_path: Path) -> None:
    groups = {"a": ("5000", 4000, 0), "b": ("100", 90, 0)}
    assert host_free_bytes(*machine(tmp_path, groups=groups, own="a")) == 1000


def test_a_group_beyond_its_limit_has_nothing(tmp_path: Path) -> None:
    assert host_free_bytes(*machine(tmp_path, groups={"": ("5000", 6000, 0)}, own="")) == 0


def test_a_machine_without_proc_gives_a_part_of_its_memory(tmp_path: Path) -> None:
    assert 0 < host_free_bytes(tmp_path / "none", tmp_path / "none") < 1 << 50

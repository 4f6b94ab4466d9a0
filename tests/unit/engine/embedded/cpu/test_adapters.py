"""Adapters by the kernel: what torch makes of them, to rounding, whatever rows and adapters lie beside each other."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from openclaw_rl.engine.embedded.cache import Strand
from openclaw_rl.engine.embedded.cpu.adapter_code import MAX_RANK
from openclaw_rl.engine.embedded.cpu.adapter_kernel import AdapterKernel, adapter_is_right
from openclaw_rl.engine.embedded.cpu.adapters import Group, KernelAdapters, KernelLora
from openclaw_rl.engine.embedded.runner import NetworkRunner, SequencePiece
from openclaw_rl.model.adapter import TARGETS, AdapterWeights, LoraRows
from openclaw_rl.model.architecture import MODULES, Architecture, Module
from tests.unit.engine.embedded.rig import ARCHITECTURE, network

CPU = torch.device("cpu")
WHOLE = replace(ARCHITECTURE, hidden_size=96, mlp_size=160, num_heads=6, num_kv_heads=2, head_dim=16)
"""Sizes that the kernel takes: inputs in blocks of 32, outputs in tiles of 16."""

ONE_OF_EACH = [(16, TARGETS), (1, ("q_proj", "v_proj")), (6, ("k_proj", "down_proj")), (MAX_RANK, ("up_proj",))]


@pytest.fixture(scope="module")
def kernel() -> AdapterKernel:
    return AdapterKernel()


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def draw(arch: Architecture, rank: int, targets: tuple[str, ...] = TARGETS, *, seed: int = 0) -> AdapterWeights:
    return AdapterWeights.random(
        arch, rank=rank, alpha=3.0 * rank, targets=targets, seed=seed, b_std=0.5, device=CPU, dtype=torch.float32
    )


def sizes(module: Module) -> tuple[int, int]:
    parts = WHOLE.projections(module)
    return parts[0].in_features, sum(part.out_features for part in parts)


def rows_of(module: Module, num_rows: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(num_rows)
    num_in, num_out = sizes(module)
    return torch.randn(num_rows, num_in, generator=random), torch.randn(num_rows, num_out, generator=random)


def groups(adapters: list[AdapterWeights], counts: list[int]) -> list[Group]:
    """Groups of so many rows, and behind each a row that wears nothing."""
    made, row = [], 0
    for adapter, count in zip(adapters, counts, strict=True):
        made.append((slice(row, row + count), adapter))
        row += count + 1
    return made


@pytest.mark.parametrize("counts", [[1, 1, 1, 1], [4, 5, 3, 2], [1, 70, 9, 1]], ids=["single rows", "few", "a prompt"])
def test_rows_come_out_as_by_torch(kernel: AdapterKernel, threads: None, counts: list[int]) -> None:
    worn = groups([draw(WHOLE, rank, targets, seed=rank) for rank, targets in ONE_OF_EACH], counts)
    ours, torchs = KernelAdapters(kernel).rows(worn), LoraRows(worn)
    for layer in range(WHOLE.num_layers):
        for module in MODULES:
            x, y = rows_of(module, worn[-1][0].stop + 1)
            with torch.inference_mode():
                got, wanted = ours.add(layer, module, x, y.clone()), torchs.add(layer, module, x, y.clone())
            torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-5)


def test_a_row_has_the_same_bits_alone_and_among_others(kernel: AdapterKernel, threads: None) -> None:
    many = [draw(WHOLE, 16, seed=seed) for seed in range(9)]
    adapters = KernelAdapters(kernel)
    x, y = rows_of("gate_up", 40)
    together = adapters.rows(groups(many, [1, 2, 3, 4, 5, 6, 1, 1, 1]))
    alone = adapters.rows([(slice(0, 1), many[4])])
    with torch.inference_mode():
        among = together.add(1, "gate_up", x, y.clone())
        for row in range(14, 19):  # of the fifth: (1 + 2 + 3 + 4) rows and four bare ones lie before
            one = alone.add(1, "gate_up", x[row : row + 1], y[row : row + 1].clone())
            assert torch.equal(one[0], among[row])


@pytest.mark.parametrize(
    ("arch", "rank", "dtype"),
    [(ARCHITECTURE, 4, torch.float32), (WHOLE, MAX_RANK + 1, torch.float32), (WHOLE, 4, torch.bfloat16)],
    ids=["odd sizes", "a large rank", "another precision"],
)
def test_what_the_kernel_does_not_know_is_torchs(
    kernel: AdapterKernel, arch: Architecture, rank: int, dtype: torch.dtype
) -> None:
    adapter = draw(arch, rank)
    adapter = adapter.over(adapter.flat.to(dtype))
    worn = [(slice(0, 2), adapter)]
    part = arch.projections("o")[0]
    x, y = torch.randn(3, part.in_features, dtype=dtype), torch.randn(3, part.out_features, dtype=dtype)
    with torch.inference_mode():
        got, wanted = (
            KernelAdapters(kernel).rows(worn).add(0, "o", x, y.clone()),
            LoraRows(worn).add(0, "o", x, y.clone()),
        )
    assert torch.equal(got, wanted)


def test_an_adapter_is_held_while_its_rows_are_computed_and_no_longer(kernel: AdapterKernel) -> None:
    adapters = KernelAdapters(kernel)
    lora: KernelLora | None = adapters.rows([(slice(0, 1), draw(WHOLE, 4))])
    gc.collect()
    assert len(adapters._tables) == 1
    del lora
    gc.collect()
    assert not adapters._tables


def test_a_step_of_the_model_asks_the_kernel_for_all_adapters_at_once(kernel: AdapterKernel) -> None:
    class Counting(AdapterKernel):
        num_calls = 0

        def __init__(self) -> None:
            pass

        def add(self, units: Any, entry: int, x: int, y: int, **options: Any) -> None:
            self.num_calls += 1
            kernel.add(units, entry, x, y, **options)

    net, counting = network(0, WHOLE), Counting()
    by_kernel, by_torch = NetworkRunner(net, KernelAdapters(counting)), NetworkRunner(net)
    worn = [draw(WHOLE, 4, seed=1), None, draw(WHOLE, 8, seed=2)]

    def step(runner: NetworkRunner) -> list[Tensor]:
        return runner.run(
            [
                SequencePiece(
                    strand=Strand(storage=runner.new_storage(16), capacity=16),
                    token_ids=[3 + place, 7],
                    version=f"v{place}",
                    adapter=adapter,
                    num_wanted=1,
                )
                for place, adapter in enumerate(worn)
            ]
        )

    for got, wanted in zip(step(by_kernel), step(by_torch), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    assert counting.num_calls == WHOLE.num_layers * len(MODULES)


def test_a_kernel_that_adds_something_else_is_found_out(kernel: AdapterKernel) -> None:
    class Broken(AdapterKernel):
        def __init__(self) -> None:
            pass

        def add(self, units: Any, entry: int, x: int, y: int, **options: Any) -> None:
            kernel.add(units, entry, x, y, **options)
            ctypes.cast(y, ctypes.POINTER(ctypes.c_float))[20] += 0.01

    assert adapter_is_right(kernel)
    assert not adapter_is_right(Broken())

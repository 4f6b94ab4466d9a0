"""The trainer on a GPU: the same step as on a CPU, and in bfloat16 one that learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.trainer import SETTINGS, make_order, random_folder
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import StepOrder
from tests.gpu.shapes import architecture

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ARCH = architecture("qwen3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_folder(tmp_path_factory.mktemp("model"), ARCH, CPU)


def order(folder: Path, number: int = 1, **changes: Any) -> StepOrder:
    return replace(make_order(folder, ARCH, number, "combine"), settings={**SETTINGS, **changes})


def learned(target: Path, device: torch.device) -> torch.Tensor:
    return AdapterWeights.load(target / WEIGHTS, ARCH, device=device, dtype=torch.float32).flat.cpu()


def test_a_step_in_float32_is_that_of_a_cpu(folder: Path, tmp_path: Path) -> None:
    reports = {}
    for device in (CPU, CUDA):
        trainer = TorchTrainer(folder, device=device, dtype=torch.float32)
        ordered = order(tmp_path / device.type)
        target = tmp_path / device.type / "v1"
        target.parent.mkdir()
        reports[device.type] = trainer.step(ordered, target)
    assert reports["cuda"].state == "done"
    for name in ("loss/total", "loss/binary", "loss/opd"):
        assert reports["cuda"].metrics[name] == pytest.approx(reports["cpu"].metrics[name], abs=1e-4)
    assert reports["cuda"].metrics["gradient/norm"] == pytest.approx(reports["cpu"].metrics["gradient/norm"], rel=1e-3)


@pytest.mark.parametrize("changes", [{}, {"teacher": "ema"}, {"use_gradient_checkpointing": True}, {"critic": True}])
def test_steps_in_bfloat16_learn_and_go_on_from_their_checkpoint(
    folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    first = order(tmp_path, **changes)
    trainer = TorchTrainer(folder, device=CUDA, dtype=torch.bfloat16)
    assert trainer.step(first, tmp_path / "v1").state == "done"
    second = order(tmp_path, 2, **changes)
    report = trainer.step(second, tmp_path / "v2")
    assert report.state == "done", report.reason
    in_memory = learned(tmp_path / "v2", CUDA)
    moved = (in_memory - learned(tmp_path / "v1", CUDA)).norm()
    assert moved > 0
    resumed = TorchTrainer(folder, device=CUDA, dtype=torch.bfloat16)
    resumed.step(second, tmp_path / "again")
    # Attention adds its gradients up in no fixed order, and where one is almost nothing, Adam makes a step of the rest.
    assert (learned(tmp_path / "again", CUDA) - in_memory).norm() < 0.05 * moved


def test_missing_memory_makes_parts_smaller(folder: Path, tmp_path: Path) -> None:
    held = torch.cuda.mem_get_info()[0] - (600 << 20)
    ballast = torch.empty(held, dtype=torch.uint8, device=CUDA)
    try:
        report = TorchTrainer(folder, device=CUDA, dtype=torch.bfloat16).step(order(tmp_path), tmp_path / "v1")
        assert report.state == "done", report.reason
    finally:
        del ballast
        torch.cuda.empty_cache()

"""FSDP2 over as many GPUs as there are takes the step of the local trainer: in bfloat16, and with compiled kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from openclaw_rl.train.fsdp.trainer import FsdpTrainer
from openclaw_rl.train.worker.trainer import TorchTrainer
from tests.factories.orders import order
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("use_lora", [True, False])
async def test_the_step_is_that_of_one_process(tmp_path: Path, dtype: str, use_lora: bool) -> None:
    model = build_tiny_model(tmp_path / "model")
    changes: dict[str, Any] = {"use_lora": use_lora, "learning_rate": 1e-2}
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    alone = TorchTrainer(model, device=torch.device("cuda", 0), dtype=getattr(torch, dtype))
    expected = alone.step(*order(here, 1, **changes))
    options = {"device": "cuda", "dtype": dtype, "threads": 1}
    together = FsdpTrainer(model, there, options, num_ranks=torch.cuda.device_count())
    try:
        found = await together.step(order(there, 1, **changes)[0])
        again = await together.step(order(there, 2, parent=str(there / "v1"), **changes)[0])
    finally:
        await together.close()
    assert again.state == "done"
    loss = expected.metrics["loss/total"]
    assert found.metrics["loss/total"] == pytest.approx(loss, rel=1e-3 if dtype == "float32" else 3e-2)
    a, b = _weights(here), _weights(there)
    before = {} if use_lora else load_file(model / "model.safetensors")
    moved = sum(float((a[name].float() - before.get(name, torch.zeros(()))).square().sum()) for name in a)
    apart = sum(float((a[name].float() - b[name].float()).square().sum()) for name in a)
    assert apart <= (1e-4 if dtype == "float32" else 1e-1) * moved


def _weights(folder: Path) -> dict[str, Tensor]:
    files = (folder / "v1" / "weights").glob("*.safetensors")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}

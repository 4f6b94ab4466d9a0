"""The trainer as a process of its own: orders, reports, errors, and a death in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import torch

from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.process import TrainerProcess
from openclaw_rl.train.trainer import Trainer
from tests.tiny import build_tiny_model
from tests.unit.train.made import order


async def test_orders_errors_and_a_death(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    expected = Trainer(model, device=torch.device("cpu"), dtype=torch.float32).step(order(here, 1))
    process = TrainerProcess(model, {"threads": torch.get_num_threads()})
    try:
        report = await process.step(order(there, 1))
        assert report.sha256 == expected.sha256, "the same bits as in this process"
        with pytest.raises(TrainError, match="cannot be read"):
            await process.step(order(there, 3, parent=str(there / "v2")))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)  # it is in the middle of nothing, but cannot answer either
        asking = asyncio.create_task(process.step(order(there, 2, parent=str(there / "v1"))))
        await asyncio.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(TrainerLost, match="-9"):
            await asking
        again = await process.step(order(there, 2, parent=str(there / "v1")))
        assert again.state == "done"
    finally:
        await process.close()

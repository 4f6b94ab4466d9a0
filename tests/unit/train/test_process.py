"""The trainer as a process of its own: orders, reports, errors, and a death in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import torch

from openclaw_rl.config import load_config
from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.process import TrainerProcess
from openclaw_rl.train.trainer import Trainer
from openclaw_rl.train.wire import StepReport
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


async def carried_out(process: TrainerProcess, folder: Path) -> tuple[dict[str, object], StepReport | Exception]:
    """What the worker of this order was started with, and what came of it."""
    asking = asyncio.create_task(process.step(order(folder, 1)))
    for _ in range(10_000):
        if process.pid is not None or asking.done():
            break
        await asyncio.sleep(0.001)
    command = psutil.Process(process.pid).cmdline()
    options: dict[str, object] = json.loads(command[command.index("--options") + 1])
    try:
        return options, await asking
    except TrainError as error:
        return options, error


async def test_after_the_second_death_over_an_order_parts_are_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = TrainerProcess(build_tiny_model(tmp_path / "model"), {"threads": 1, "gpu_ids": [1, 0]})
    try:
        monkeypatch.setenv("OPENCLAW_RL_CRASH_AT", "trainer.ordered")
        first = await carried_out(process, tmp_path)
        second = await carried_out(process, tmp_path)
        monkeypatch.delenv("OPENCLAW_RL_CRASH_AT")
        third = await carried_out(process, tmp_path)
    finally:
        await process.close()
    assert [options["shrink"] for options, _ in (first, second, third)] == [1, 1, 2]
    assert [type(came) for _, came in (first, second, third)] == [TrainerLost, TrainerLost, StepReport]
    assert first[0]["gpu_ids"] == [1, 0]
    assert process.pid is None


async def test_a_trainer_that_does_not_start_is_no_orders_fault(tmp_path: Path) -> None:
    process = TrainerProcess(tmp_path, {"threads": "many"})
    _, came = await carried_out(process, tmp_path)
    assert type(came) is TrainError
    assert "does not start" in str(came)


async def test_a_trainer_whose_parent_leaves_stops_in_the_middle(tmp_path: Path) -> None:
    """So that it does not write where the next one does. Stopped before its first order, it sees both at once."""
    process = TrainerProcess(build_tiny_model(tmp_path / "model"), {"threads": 1})
    try:
        await process.step(order(tmp_path, 1))
        worker = psutil.Process(process.pid)
        worker.suspend()
        assert process._process is not None
        assert process._process.stdin is not None
        process._process.stdin.write(json.dumps(order(tmp_path, 2, parent=str(tmp_path / "v1")).to_json()).encode())
        process._process.stdin.write(b"\n")
        process._process.stdin.close()
        worker.resume()
        assert await process._process.wait() == 0
        assert not (tmp_path / "v2").exists()
    finally:
        await process.close()


def test_the_options_are_those_of_the_settings(tmp_path: Path) -> None:
    config = load_config(overrides=("training.gpu_ids=[2,3]", "engine.threads=3", "engine.device=cpu")).config
    process = TrainerProcess.of(config, tmp_path)
    assert process._options == {"device": "cpu", "dtype": "auto", "threads": 3, "gpu_ids": [2, 3]}


async def test_a_loss_of_ones_own_that_fails_is_an_error_and_costs_no_sample(tmp_path: Path) -> None:
    loss = tmp_path / "mine.py"
    loss.write_text("def loss(rows, sample, target, settings):\n    raise ZeroDivisionError('mine')\n")
    trainer = TrainerProcess(build_tiny_model(tmp_path / "model"), {"device": "cpu", "threads": 1})
    try:
        with pytest.raises(TrainError, match="mine") as raised:
            await trainer.step(order(tmp_path, 1, custom_loss=f"{loss}:loss"))
        assert not isinstance(raised.value, TrainerLost)
    finally:
        await trainer.close()

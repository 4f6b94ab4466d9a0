"""The trainer as a process of its own: orders, reports, errors, and a death in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from openclaw_rl.config import load_config
from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.local import LocalTrainer, LocalWeights
from openclaw_rl.train.wire import Order, Report, read_order, read_report, write_order, write_report
from openclaw_rl.train.worker.__main__ import NICENESS
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Json, ScoreOrder, ScoreReport, StepReport, VersionSpan, WeightsRef
from tests.factories.orders import exercise, order, sample, weights_of
from tests.tiny import build_tiny_model


async def test_orders_errors_and_a_death(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    expected = TorchTrainer(model, device=torch.device("cpu"), dtype=torch.float32).step(*order(here, 1))
    process = LocalTrainer(model, there, {"threads": torch.get_num_threads()})
    try:
        await process.rehearse(order(there, 7)[0])
        assert not [one for one in there.iterdir() if one.name != ".orders"], "nothing is kept of a rehearsal"
        report = await process.step(order(there, 1)[0])
        assert report.sha256 == expected.sha256, "the same bits as in this process"
        assert psutil.Process(process.pid).nice() == psutil.Process().nice() + NICENESS
        if Path("/proc/sys/kernel/sched_autogroup_enabled").exists():
            group = Path(f"/proc/{process.pid}/autogroup").read_text()
            assert group.endswith(f"nice {NICENESS}\n"), "sessions are weighed against each other"
        with pytest.raises(TrainError, match="cannot be read"):
            await process.step(order(there, 3, parent=str(there / "v2"))[0])
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)  # it is in the middle of nothing, but cannot answer either
        asking = asyncio.create_task(process.step(order(there, 2, parent=str(there / "v1"))[0]))
        await asyncio.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(TrainerLost, match="-9"):
            await asking
        again = await process.step(order(there, 2, parent=str(there / "v1"))[0])
        assert again.state == "done"
    finally:
        await process.close()


async def carried_out(process: LocalTrainer, folder: Path) -> tuple[dict[str, object], StepReport | Exception]:
    """What the worker of this order was started with, and what came of it."""
    asking = asyncio.create_task(process.step(order(folder, 1)[0]))
    for _ in range(10_000):
        if process.pid is not None or asking.done():
            break
        await asyncio.sleep(0.001)
    assert "HF_TOKEN" not in psutil.Process(process.pid).environ()
    command = psutil.Process(process.pid).cmdline()
    options: dict[str, object] = json.loads(command[command.index("--options") + 1])
    try:
        return options, await asking
    except TrainError as error:
        return options, error


async def test_after_the_second_death_over_an_order_parts_are_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    options: dict[str, Json] = {"threads": 1, "gpu_ids": [1, 0], "device": "cpu"}
    process = LocalTrainer(build_tiny_model(tmp_path / "model"), tmp_path, options)
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
    process = LocalTrainer(tmp_path, tmp_path, {"threads": "many"})
    _, came = await carried_out(process, tmp_path)
    assert type(came) is TrainError
    assert "does not start" in str(came)


async def test_a_trainer_whose_parent_leaves_stops_in_the_middle(tmp_path: Path) -> None:
    """So that it does not write where the next one does. Stopped before its first order, it sees both at once."""
    process = LocalTrainer(build_tiny_model(tmp_path / "model"), tmp_path, {"threads": 1})
    try:
        await process.step(order(tmp_path, 1)[0])
        worker = psutil.Process(process.pid)
        worker.suspend()
        assert process._process is not None
        assert process._process.stdin is not None
        given, target = order(tmp_path, 2, parent=str(tmp_path / "v1"))
        write_order(tmp_path / "order", given)
        line = {"order": str(tmp_path / "order"), "report": str(tmp_path / "report"), "target": str(target)}
        process._process.stdin.write(json.dumps(line).encode() + b"\n")
        process._process.stdin.close()
        worker.resume()
        assert await process._process.wait() == 0
        assert not (tmp_path / "v2").exists()
    finally:
        await process.close()


def test_the_options_are_those_of_the_settings(tmp_path: Path) -> None:
    config = load_config(overrides=("training.gpu_ids=[2,3]", "engine.threads=3", "engine.device=cpu")).config
    process = LocalTrainer.of(config, tmp_path)
    assert process._options == {"device": "cpu", "dtype": "auto", "threads": 3, "gpu_ids": [2, 3]}


def test_the_trainer_may_compute_elsewhere_than_the_engine(tmp_path: Path) -> None:
    own = (
        *(f"store.data_dir={tmp_path}", "engine.device=cuda", "engine.dtype=bfloat16"),
        *("training.device=cpu", "training.dtype=float32"),
    )
    options = LocalTrainer.of(load_config(overrides=own).config, tmp_path)._options
    assert (options["device"], options["dtype"]) == ("cpu", "float32")
    options = LocalTrainer.of(load_config(overrides=own[:3]).config, tmp_path)._options
    assert (options["device"], options["dtype"]) == ("cuda", "bfloat16"), "those of the engine by default"


async def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    model = build_tiny_model(tmp_path / "model")
    trainer = LocalTrainer(model, tmp_path / "versions", {"device": "cuda", "threads": 1})
    with pytest.raises(TrainError, match="does not start"):
        await trainer.step(order(tmp_path, 1)[0])
    await trainer.close()


async def test_a_loss_of_ones_own_that_fails_is_an_error_and_costs_no_sample(tmp_path: Path) -> None:
    loss = tmp_path / "mine.py"
    loss.write_text("def loss(rows, sample, target, settings):\n    raise ZeroDivisionError('mine')\n")
    trainer = LocalTrainer(build_tiny_model(tmp_path / "model"), tmp_path, {"device": "cpu", "threads": 1})
    try:
        with pytest.raises(TrainError, match="mine") as raised:
            await trainer.step(order(tmp_path, 1, custom_loss=f"{loss}:loss")[0])
        assert not isinstance(raised.value, TrainerLost)
    finally:
        await trainer.close()


def test_orders_and_reports_survive_their_files(tmp_path: Path) -> None:
    given, target = order(tmp_path, 3, parent=str(tmp_path / "v2"))
    weights = weights_of(tmp_path / "v1")
    numbers = ((-1.0, -0.5), ())
    orders: tuple[Order, ...] = (
        replace(given, exercises=(exercise(),), anchors=((1, 2),), stop_token_ids=(2,)),
        ScoreOrder(sequences=((1, 2, 3), (4, 5)), starts=(1, 1), parent=None, candidate=weights, settings={"a": 1}),
    )
    reports: tuple[Report, ...] = (
        StepReport(state="done", metrics={"loss/total": 0.5}, weights=WeightsRef.of_folder(target, "ab")),
        StepReport(state="discarded", metrics={}, reason="no"),
        ScoreReport(parent=numbers, candidate=numbers, sha256="ab"),
    )
    for number, one in enumerate(orders):
        write_order(tmp_path / f"o{number}", one)
        assert read_order(tmp_path / f"o{number}") == one
    for number, report in enumerate(reports):
        write_report(tmp_path / f"r{number}", report)
        assert read_report(tmp_path / f"r{number}") == report
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("[or]?")} == {0o600}
    with pytest.raises(FileExistsError):
        write_report(tmp_path / "r0", reports[0])


async def test_an_order_of_any_size_is_carried_out_and_leaves_no_file(tmp_path: Path) -> None:
    """A sample from which nothing can be learned costs no pass, however long it is."""
    size = 6_000_000
    huge = sample(
        1, num_hints=0, w_rl=0.0, response_ids=(100_000,) * size, loss_mask=(False,) * size, advantages=(0.0,) * size,
        logprobs=None, version_spans=(VersionSpan("v0", 0, size),),
    )  # fmt: skip
    given, _ = order(tmp_path, 1, huge, sample(2))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "order-7.jsonl").write_text("left by a control process that was killed")
    process = LocalTrainer(build_tiny_model(tmp_path / "model"), tmp_path, {"threads": 1}, scratch=scratch)
    assert not scratch.exists()
    sizes: list[int] = []
    try:
        stepping = asyncio.create_task(process.step(given))
        while not stepping.done():
            sizes += [path.stat().st_size for path in scratch.glob("order-*") if path.exists()]
            await asyncio.sleep(0.01)
        assert (await stepping).state == "done"
        assert max(sizes) > 64 << 20
        assert list(scratch.iterdir()) == []
        with pytest.raises(TrainError):
            await process.step(order(tmp_path, 3, parent=str(tmp_path / "v2"))[0])
        assert list(scratch.iterdir()) == [], "nor does an error"
    finally:
        await process.close()


async def test_weights_go_with_all_that_belongs_to_them_and_nothing_else_goes(tmp_path: Path) -> None:
    keeper = LocalWeights(tmp_path)
    for name in ("v1", "v2", ".v2.partial", "v2.ann", "mine"):
        (tmp_path / name / "weights").mkdir(parents=True)
    await keeper.discard(weights_of(tmp_path / "v1"))
    await keeper.discard(weights_of(tmp_path / "v1"))
    await keeper.abandon("local", 2)
    await keeper.abandon("local", 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "v2.ann"]
    for other in (WeightsRef(uri="tinker://run/7", sha256=""), WeightsRef.of_folder(tmp_path / "mine", "")):
        with pytest.raises(TrainError, match=r"training\.backend"):
            await keeper.discard(other)
    assert (tmp_path / "mine").exists()

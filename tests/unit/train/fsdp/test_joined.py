"""Processes that somebody else started join, and take orders: over the real connection, without tensors."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import psutil
import pytest

from openclaw_rl.cli.worker.trainer import torchrun
from openclaw_rl.config import load_config
from openclaw_rl.errors import ConfigError, TrainerLost, TrainError
from openclaw_rl.train.fsdp.joined import JoinedTrainer
from openclaw_rl.train.fsdp.joining import Joined
from openclaw_rl.train.registry import new_trainer
from openclaw_rl.train.wire import parse_order
from openclaw_rl.types import StepReport
from tests.factories.orders import order
from tests.tiny import build_tiny_model

REPORT = StepReport(state="discarded", metrics={"loss/total": 0.5}, reason="nothing")


def joined_trainer(folder: Path, **changes: object) -> JoinedTrainer:
    settings: dict[str, object] = {"listen": str(folder / "s"), "key_file": folder / "trainer.key", **changes}
    return JoinedTrainer(folder / "model", folder, {"threads": 1}, **settings)  # type: ignore[arg-type]


def join(folder: Path, key: str, world_size: int) -> Joined:
    return Joined(str(folder / "s"), key, world_size=world_size, on_end=lambda: None)


async def test_a_group_takes_orders_and_the_next_one_takes_over(tmp_path: Path) -> None:
    trainer = joined_trainer(tmp_path, world_size=2)
    given = order(tmp_path, 1)[0]
    await trainer.listen()
    asking = asyncio.create_task(trainer.step(given))
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "trainer.key").stat().st_mode & 0o777 == 0o600
    key = (tmp_path / "trainer.key").read_text().strip()
    try:
        with pytest.raises(TrainError, match=r"the key is another; give --key-file"):
            await asyncio.to_thread(join, tmp_path, "guessed", 2)
        with pytest.raises(TrainError, match=r"8 processes join.* ask for 2; start so many .*training\.gpus_per_node"):
            await asyncio.to_thread(join, tmp_path, key, 8)
        assert not asking.done(), "an order waits until a group is there"
        first = await asyncio.to_thread(join, tmp_path, key, 2)
        assert (first.model, first.options) == (tmp_path / "model", {"threads": 1, "shrink": 1})
        text, target = await asyncio.to_thread(first.next_order)
        assert (parse_order(text.splitlines()), target) == (given, str(tmp_path / "v1"))
        first.answer(REPORT)
        assert await asking == REPORT

        refused = asyncio.create_task(trainer.rehearse(given))
        assert (await asyncio.to_thread(first.next_order))[1] is None
        first.answer("out of luck")
        with pytest.raises(TrainError, match="^out of luck$"):
            await refused

        lost = asyncio.create_task(trainer.step(given))
        await asyncio.to_thread(first.next_order)
        second = asyncio.create_task(asyncio.to_thread(join, tmp_path, key, 2))
        first.lost("rank 1: it broke")
        with pytest.raises(TrainerLost, match="rank 1: it broke"):
            await lost
        again = asyncio.create_task(trainer.step(given))
        follower = await second
        await asyncio.to_thread(follower.next_order)
        follower.answer(REPORT)
        assert await again == REPORT
    finally:
        await trainer.close()


def test_the_settings_choose_who_starts_it(tmp_path: Path) -> None:
    own = ["training.backend=fsdp", "training.ranks=joined", f"store.data_dir={tmp_path}"]
    trainer = new_trainer(
        load_config(env={}, overrides=[*own, "training.gpus_per_node=8", "training.nnodes=2"]).config, tmp_path
    )
    assert isinstance(trainer, JoinedTrainer)
    assert (trainer._world_size, trainer._listen) == (16, str(tmp_path / "run" / "trainer.sock"))
    trainer = new_trainer(load_config(env={}, overrides=[*own, "training.listen=10.0.0.1:7000"]).config, tmp_path)
    assert isinstance(trainer, JoinedTrainer)
    assert (trainer._world_size, trainer._listen) == (None, "10.0.0.1:7000")


def test_a_path_that_no_socket_can_have_is_refused_with_the_remedy(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    own = ["training.backend=fsdp", "training.ranks=joined", f"store.data_dir={deep}"]
    with pytest.raises(ConfigError, match=r"trainer\.sock has \d+ bytes.* set training\.listen"):
        new_trainer(load_config(env={}, overrides=own).config, tmp_path)
    assert isinstance(
        new_trainer(load_config(env={}, overrides=[*own, "training.listen=10.0.0.1:7000"]).config, tmp_path),
        JoinedTrainer,
    )
    with pytest.raises(TrainError, match="bytes, and this system allows"):
        Joined(str(deep / "s"), "key", world_size=1)  # and does not wait for ever


def test_the_command_for_a_machine(tmp_path: Path) -> None:
    key = tmp_path / "trainer.key"
    key.write_text("k")

    def command(*settings: str, join: str = "10.0.0.1:7000", key_file: Path = key) -> str:
        return " ".join(torchrun(load_config(env={}, overrides=settings).config, join, key_file)[1:])

    assert command("training.gpus_per_node=4") == (
        "-m openclaw_rl.train.fsdp.torchrun --standalone --nproc-per-node 4 --max-restarts 10000 "
        f"-m openclaw_rl.train.fsdp --join 10.0.0.1:7000 --key-file {key} --options {{}}"
    )
    many = command("training.gpu_ids=2,3", "training.nnodes=2", "training.node_rank=1", "training.master_addr=10.0.0.7")
    assert "--nnodes 2 --node-rank 1 --master-addr 10.0.0.7 --master-port 6000 --nproc-per-node 2" in many
    assert '{"gpu_ids": [2, 3]}' in many
    for settings, changes, told in (
        ([], {}, "set training.gpus_per_node"),
        (["training.gpus_per_node=1", "training.node_rank=1"], {}, "none of training.nnodes=1 machines"),
        (["training.gpus_per_node=1"], {"join": "nowhere"}, "give HOST:PORT"),
        (["training.gpus_per_node=1"], {"key_file": tmp_path / "none"}, "name the copy with --key-file"),
    ):
        with pytest.raises(ConfigError, match=told):
            command(*settings, **changes)


@pytest.mark.scale
async def test_processes_of_torchrun_that_are_refused_say_why_and_end(tmp_path: Path) -> None:
    trainer = joined_trainer(tmp_path, world_size=2)
    await trainer.listen()
    (tmp_path / "other.key").write_text("guessed")
    command = [sys.executable, "-m", "openclaw_rl", "worker", "trainer", "--join", str(tmp_path / "s")]
    command += ["--key-file", str(tmp_path / "other.key"), "training.gpus_per_node=2", "training.device=cpu"]
    worker = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        said = (await worker.communicate())[1].decode()
        assert worker.returncode == 1
        assert said.count("cannot join: the key is another; give --key-file a copy of") == 1
        assert "Traceback" not in said
    finally:
        await trainer.close()


@pytest.mark.scale
async def test_processes_of_torchrun_train_for_a_system_and_start_again_with_it(tmp_path: Path) -> None:
    build_tiny_model(tmp_path / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    trainer = joined_trainer(tmp_path, listen=address, world_size=2)
    await trainer.listen()
    settings = ["training.gpus_per_node=2", "training.device=cpu", f"store.data_dir={tmp_path}"]
    log = (tmp_path / "log").open("w")
    command = [sys.executable, "-m", "openclaw_rl", "worker", "trainer", "--join", address, *settings]
    worker = await asyncio.create_subprocess_exec(*command, stderr=log)
    try:
        for number in (1, 2):
            parent = str(tmp_path / "v1") if number == 2 else None
            report = await trainer.step(order(tmp_path, number, parent=parent)[0])
            assert (report.state, report.sha256 is not None) == ("done", True)
            await trainer.close()  # as the system does when it is stopped; torchrun starts the processes again
            await trainer.listen()
    finally:
        await trainer.close()
        children = psutil.Process(worker.pid).children(recursive=True)
        worker.terminate()
        await worker.wait()
        log.close()
        psutil.wait_procs(children, timeout=10)
    assert json.loads((tmp_path / "v2" / "trainer" / "state.json").read_text())["step"] == 2

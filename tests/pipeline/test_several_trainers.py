"""A correction is learned by processes that joined from outside, one of which dies on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from openclaw_rl.store import StoreReader
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.scale, pytest.mark.timeout(300)]


def ranks(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = psutil.Process(worker.pid).children(recursive=True)
    return [one for one in found if "openclaw_rl.train.fsdp" in one.cmdline()]


def test_a_correction_is_learned_by_processes_that_joined(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    settings = (
        *("engine.type=embedded", f"model.name={model}", "training.batch_size=1", "training.max_wait_s=0.1"),
        *("training.truncated=score", "training.backend=fsdp", "training.ranks=joined", "training.gpus_per_node=2"),
        *OPEN_GATE,
    )
    with Server(tmp_path / "data", *settings) as server:
        join = ["--join", str(tmp_path / "data" / "run" / "trainer.sock"), "--data-dir", str(tmp_path / "data")]
        worker = subprocess.Popen(
            [sys.executable, "-m", "openclaw_rl", "worker", "trainer", *join, "training.gpus_per_node=2"]
        )
        try:
            reader = StoreReader.open(tmp_path / "data")
            for number, topic in ((1, "rain"), (2, "snow")):
                asked = [{"role": "user", "content": f"what is {topic}"}]
                said = server.chat(asked, max_tokens=12).json()["choices"][0]["message"]["content"]
                server.wait_until(lambda: len(ranks(worker)) == 2, timeout_s=60.0)
                if number == 2:
                    ranks(worker)[1].kill()  # torchrun starts both again, and the step is taken by these
                told = {"role": "user", "content": "no, shorter please"}
                server.chat([*asked, {"role": "assistant", "content": said}, told], max_tokens=12)
                server.wait_until(
                    lambda number=number: any(
                        one.number == number and one.state == "live" for one in reader.versions()
                    ),
                    timeout_s=120.0,
                )
            version = next(one for one in reader.versions("local") if one.number == 2)
            assert version.gate["proof"]["correlation"] > 0.999, "the engine serves what was trained"
            assert version.weights is not None
            assert version.weights.folder is not None
            shards = version.weights.folder.parent / "trainer"
            assert len(list(shards.glob("optimiser-*-of-00002.safetensors"))) == 2
        finally:
            children = psutil.Process(worker.pid).children(recursive=True)
            worker.terminate()
            worker.wait()
            psutil.wait_procs(children, timeout=10)

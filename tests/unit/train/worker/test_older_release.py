"""A checkpoint of an earlier release: its line goes on from it.

`tests/data/stores/checkpoint-1.tar.gz` was written by the last release with schema version 8: step 1 of the tiny model,
with an adapter of rank 1 on `q_proj`.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from tests.factories.orders import order, sample
from tests.factories.torch_trainers import logprobs, new_trainer
from tests.pages import ROOT
from tests.tiny import build_tiny_model

OLD = ROOT / "tests" / "data" / "stores" / "checkpoint-1.tar.gz"
FORM = {"lora_rank": 1, "lora_target_modules": ["q_proj"]}
SHA256 = "d17a8d00cabf5d8ed8205be6414a5ac6c5d51ab09e4954610fd25df75a705081"
"""What the earlier release wrote into the row of this version."""


def num_steps(checkpoint: Path) -> set[float]:
    """How many steps the optimiser counts, by parameter."""
    state = load_file(checkpoint / "trainer" / "optimiser.safetensors")
    return {float(tensor) for name, tensor in state.items() if name.endswith("step")}


def test_a_line_goes_on_from_an_earlier_releases_checkpoint(tmp_path: Path) -> None:
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    before = {path: path.read_bytes() for path in (tmp_path / "v1").rglob("*.*")}
    trainer = new_trainer(build_tiny_model(tmp_path / "tiny"))
    report = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1"), **FORM))
    assert (report.state, num_steps(tmp_path / "v1"), num_steps(tmp_path / "v2")) == ("done", {1.0}, {2.0})
    assert before == {path: path.read_bytes() for path in (tmp_path / "v1").rglob("*.*")}
    given = sample(1)
    told = [logprobs(trainer, name, given.prompt_ids, given) for name in (None, str(tmp_path / "v1"))]
    assert not torch.equal(*told), "the adapter has an effect"
    assert folder_sha256(tmp_path / "v1" / WEIGHTS) == SHA256

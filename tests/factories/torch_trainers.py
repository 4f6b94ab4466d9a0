"""The torch trainer in this process, and what a checkpoint of it says."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.train.passes.plain import response_rows
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.train.worker.student import NetworkModel
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample


def new_trainer(model: Path) -> TorchTrainer:
    return TorchTrainer(model, device=torch.device("cpu"), dtype=torch.float32)


def logprobs(trainer: TorchTrainer, checkpoint: str | None, prompt_ids: tuple[int, ...], given: Sample) -> Tensor:
    """[R, V]: what follows the prompt and each token of the response, under a checkpoint."""
    assert isinstance(trainer._base, NetworkModel)
    network, lora = trainer._base.network, None
    if checkpoint is not None:
        cpu = torch.device("cpu")
        adapter = AdapterWeights.load(Path(checkpoint) / WEIGHTS, network.arch, device=cpu, dtype=torch.float32)
        lora = LoraRows([(slice(0, len(prompt_ids) + len(given.response_ids) - 1), adapter)])
    with torch.no_grad():
        (rows,) = response_rows(network, [Sequenced(prompt_ids, given.response_ids)], lora)
        return (network.logits(rows) / given.temperature).log_softmax(-1)

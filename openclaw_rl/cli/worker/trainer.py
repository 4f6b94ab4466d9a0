"""Settings -> torchrun's command for the ranks of this machine, which this process becomes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from openclaw_rl.config import Config
from openclaw_rl.config.environment import worker_environment
from openclaw_rl.errors import ConfigError, TrainError
from openclaw_rl.train.fsdp.joining import parse_address

_MAX_RESTARTS = 10_000
"""They also start again with the system that they train for."""


def become_trainer(config: Config, join: str, key_file: Path | None) -> NoReturn:
    """Never returns."""
    command = torchrun(config, join, key_file or config.store.data_dir / "trainer.key")
    os.execve(sys.executable, command, worker_environment())  # noqa: S606 (on purpose, and through no shell)


def torchrun(config: Config, join: str, key_file: Path) -> list[str]:
    """`ConfigError` where the settings say nothing that can be started."""
    training = config.training
    try:
        parse_address(join)
    except TrainError as error:
        raise ConfigError(f"--join: {error}") from error
    if not key_file.is_file():
        raise ConfigError(
            f"there is no {key_file}; copy trainer.key out of the data directory of the system that is joined, and "
            "name the copy with --key-file"
        )
    if not (training.gpus_per_node or training.actor_gpus or training.gpu_ids):
        raise ConfigError("nothing says how many processes train here; set training.gpus_per_node, or training.gpu_ids")
    if training.node_rank >= training.nnodes:
        raise ConfigError(
            f"training.node_rank={training.node_rank} is none of training.nnodes={training.nnodes} machines, which are "
            "counted from 0"
        )
    where = ["--standalone"]
    if training.nnodes > 1:
        where = ["--nnodes", str(training.nnodes), "--node-rank", str(training.node_rank)]
        where += ["--master-addr", training.master_addr, "--master-port", str(training.master_port)]
    own = {"device": training.device, "dtype": training.dtype, "gpu_ids": list(training.gpu_ids)}
    options = {name: value for name, value in own.items() if value}
    return [
        *(sys.executable, "-m", "openclaw_rl.train.fsdp.torchrun", *where, "--nproc-per-node", str(training.num_ranks)),
        *("--max-restarts", str(_MAX_RESTARTS), "-m", "openclaw_rl.train.fsdp"),
        *("--join", join, "--key-file", str(key_file), "--options", json.dumps(options)),
    ]

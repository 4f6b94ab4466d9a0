"""The commands that start processes for a system that runs elsewhere, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.options import Loaded, command, opt

room = typer.Typer()
worker = typer.Typer(help="Processes for a system that runs elsewhere.", no_args_is_help=True)
room.add_typer(worker, name="worker")


@worker.callback()
def common() -> None:
    pass


@command(worker)
def trainer(
    loaded: Loaded,
    join: Annotated[str, opt("--join ADDRESS", "HOST:PORT where it listens (training.listen), or a socket's path.")],
    key_file: Annotated[
        Path | None, opt("--key-file FILE", "A copy of its trainer.key.", show_default="DIR/trainer.key")
    ] = None,
) -> None:
    """Train for a system that runs with training.ranks=joined, on the GPUs of this machine.

    One process for each of training.gpus_per_node; with training.nnodes give the same command on every machine, each
    with its training.node_rank. They start again when they fail, and wait while nobody listens.
    """
    from openclaw_rl.cli.worker.trainer import become_trainer

    become_trainer(loaded.config, join, key_file)

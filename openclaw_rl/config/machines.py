"""How many processes, GPUs and machines train -> what of it a start refuses, and what to set instead.

One process trains (`local`), or one for each GPU of one machine or several (`fsdp`). Looks at settings alone: whether a
machine has the GPUs, a trainer's process says when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from openclaw_rl.config.learning import TrainingConfig
from openclaw_rl.config.tree import Config

_HERE = ("localhost", "127.0.0.1", "::1")
_SERVING_TOO = ("num_gpus", "gpus_per_node", "nnodes")
"""How many GPUs and machines somebody means to use concerns a server that only serves as well."""
_TAKES: dict[str, tuple[Any, ...]] = {
    "num_gpus": (None, 0, 1),
    "actor_gpus": (None, 0, 1),
    "gpus_per_node": (None, 1),
    "nnodes": (1,),
    "node_rank": (0,),
    "master_addr": _HERE,
    "master_port": (6000,),
}
"""By key of `training`: what one process on one machine takes."""
_ADVICE = {
    "num_gpus": "leave it unset, or at 1",
    "actor_gpus": "leave it unset, or at 1",
    "gpus_per_node": "leave it unset, or at 1",
    "nnodes": "leave it at 1",
    "node_rank": "leave it at 0",
    "master_addr": "set it to localhost, 127.0.0.1 or ::1",
    "master_port": "leave it at 6000",
}


def machine_refusals(config: Config, *, learn: bool, named: Callable[[str], str]) -> Iterator[str]:
    """A sentence for each setting. `named` says a key with its variables."""
    training = config.training
    if training.backend != "fsdp":
        yield from _one_process(training, learn=learn, named=named)
    elif learn:
        yield from _many_processes(config, named=named)


def _one_process(training: TrainingConfig, *, learn: bool, named: Callable[[str], str]) -> Iterator[str]:
    for name, takes in _TAKES.items():
        value = getattr(training, name)
        if value not in takes and (learn or name in _SERVING_TOO):
            yield (
                f"{named(f'training.{name}')} = {value}: training.backend={training.backend} trains in one process; "
                f"set training.backend=fsdp to train on several GPUs or machines with FSDP2, or {_ADVICE[name]}"
            )
    if learn and len(training.gpu_ids) > 1:
        gpus = ",".join(map(str, training.gpu_ids))
        yield (
            f"training.gpu_ids = {gpus}: training.backend={training.backend} trains on one GPU; set "
            f"training.backend=fsdp to train on all of them with FSDP2, or name one, such as {training.gpu_ids[0]}"
        )
    if learn and training.ranks != "started":
        yield (
            f"training.ranks = {training.ranks}: training.backend={training.backend} starts its own process; set "
            "training.backend=fsdp, or leave it at started"
        )


def _many_processes(config: Config, *, named: Callable[[str], str]) -> Iterator[str]:
    training = config.training
    counts = {name: count for name, count in _counts(training).items() if count}
    if not counts and training.ranks == "started":
        yield (
            "training.backend = fsdp: nothing says how many processes train on this machine; set "
            f"{named('training.gpus_per_node')}, or name their GPUs with training.gpu_ids"
        )
    if len(set(counts.values())) > 1:
        told = " and ".join(f"{name}={count}" for name, count in counts.items())
        yield f"training.backend = fsdp: {told} differ, and each GPU gets one process; give one of them"
    asked = training.num_ranks + (config.engine.num_gpus or 0) + (config.evaluation.judge_gpus or 0)
    if training.num_gpus and asked > training.num_gpus and _on_gpus(config):
        yield (
            f"{named('training.num_gpus')} = {training.num_gpus}: {training.num_ranks} processes train, and together "
            f"with those that serve they need {asked} GPUs; raise it, or lower {named('training.gpus_per_node')}"
        )
    if training.gpu_ids and not _on_gpus(config):
        yield "training.gpu_ids names GPUs, and training.device is cpu; set training.gpus_per_node instead"
    if training.teacher_url is not None:
        yield (
            "training.teacher_url: with training.backend=fsdp the processes read their teacher themselves; name its "
            "folder with training.teacher_path, or set training.backend=local"
        )
    if training.nnodes > 1 and training.ranks == "started":
        yield (
            f"{named('training.nnodes')} = {training.nnodes}: `up` starts the processes of its own machine; set "
            "training.ranks=joined, and start them on every machine with `openclaw-rl worker trainer --join URL`, or "
            "with `torchrun … -m openclaw_rl.train.fsdp --join URL`"
        )
    if training.listen is not None and training.ranks == "started":
        yield f"training.listen = {training.listen}: `up` starts the processes; set training.ranks=joined, or remove it"
    for name in ("node_rank", "master_addr", "master_port"):
        if training.nnodes == 1 and (value := getattr(training, name)) not in _TAKES[name]:
            yield (
                f"{named(f'training.{name}')} = {value}: there is one machine; set {named('training.nnodes')} to how "
                f"many train together, or {_ADVICE[name]}"
            )


def _counts(training: TrainingConfig) -> dict[str, int | None]:
    return {
        "training.gpus_per_node": training.gpus_per_node,
        "training.actor_gpus": training.actor_gpus,
        "training.gpu_ids": len(training.gpu_ids),
    }


def _on_gpus(config: Config) -> bool:
    return (config.training.device or config.engine.device) != "cpu"

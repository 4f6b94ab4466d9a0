"""Settings and the GPUs of a machine -> which process would run where, what does not fit, and settings that would.

GPUs are dealt out in the order of the documented launchers: the trainer's first, then the engine's, the judge's and the
teacher's. A process whose share nobody named takes the first GPU beside the others. A plan promises nothing: `up`
refuses what this release cannot start, and the plan repeats that sentence. Starts nothing and looks at no machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openclaw_rl.config.show import require_available
from openclaw_rl.config.tree import Config
from openclaw_rl.errors import ConfigError

_OWN = "started by openclaw-rl up"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProcess:
    """One process. `gpus` are the numbers of its own; none means the CPU, or a GPU that it shares."""

    name: str
    gpus: tuple[int, ...]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Every process of a configuration on a machine with `num_gpus` GPUs.

    `obstacles` say what does not fit or cannot be started; `proposal` are settings that do, where there are any.
    """

    num_gpus: int
    processes: tuple[PlannedProcess, ...]
    obstacles: tuple[str, ...]
    proposal: tuple[str, ...]


def plan_launch(config: Config, num_gpus: int) -> LaunchPlan:
    """What `up` means with these settings on a machine with so many GPUs."""
    shares = _shares(config)
    named = {"trainer": config.training.gpu_ids, "engine": config.engine.gpu_ids}
    processes = [PlannedProcess(name="gateway, store, loops", gpus=(), command=_OWN)]
    first = 0
    for name, share, command in shares:
        gpus = named.get(name) or tuple(range(first, first + share))
        first += share
        processes.append(PlannedProcess(name=name, gpus=gpus, command=_on(gpus, command)))
    obstacles = [*_not_fitting(config, first, num_gpus), *_not_started(config)]
    return LaunchPlan(
        num_gpus=num_gpus,
        processes=tuple(processes),
        obstacles=tuple(obstacles),
        proposal=_proposal(config, num_gpus) if obstacles else (),
    )


def _shares(config: Config) -> list[tuple[str, int, str]]:
    """Name, GPUs of its own and command of each worker."""
    engine, training, evaluation = config.engine, config.training, config.evaluation
    model = str(config.model.checkpoint_path or config.model.name)
    actor = training.actor_gpus or 0
    shares = [
        ("trainer", actor, f"{_OWN}: {actor} processes under torchrun" if actor > 1 else _OWN),
        ("engine", engine.num_gpus or 0, _served(engine.type, model, engine.num_gpus or 1)),
    ]
    if evaluation.judge_path is not None or evaluation.judge_gpus:
        judge = model if evaluation.judge_path is None else str(evaluation.judge_path)
        shares.append(("judge", evaluation.judge_gpus or 0, _served("embedded", judge, evaluation.judge_gpus or 1)))
    if training.teacher_path is not None or training.teacher_gpus:
        shares.append(("teacher", training.teacher_gpus or 0, "read by the trainer"))
    return shares


def _served(engine: str, model: str, num_gpus: int) -> str:
    if engine != "vllm" and num_gpus == 1:
        return _OWN
    return f"vllm serve {model}" + (f" --tensor-parallel-size {num_gpus}" if num_gpus > 1 else "")


def _on(gpus: tuple[int, ...], command: str) -> str:
    named = ",".join(map(str, gpus))
    return f"CUDA_VISIBLE_DEVICES={named} {command}" if gpus and command.startswith("vllm ") else command


def _not_fitting(config: Config, asked: int, num_gpus: int) -> Iterator[str]:
    named = config.training.num_gpus
    if named is not None and asked > named:
        yield f"the parts ask for {asked} GPUs together, and training.num_gpus is {named}: raise it, or lower theirs"
    for key, numbers in (("training.gpu_ids", config.training.gpu_ids), ("engine.gpu_ids", config.engine.gpu_ids)):
        if beyond := [number for number in numbers if number >= num_gpus]:
            have = f"{num_gpus} GPU" + ("" if num_gpus == 1 else "s")
            yield f"{key} names GPU {beyond[0]}, and this machine has {have if num_gpus else 'none'}"
    if max(asked, named or 0) > num_gpus:
        have = f"{num_gpus} GPU" + ("" if num_gpus == 1 else "s")
        yield f"{max(asked, named or 0)} GPUs are asked for, and this machine has {have if num_gpus else 'none'}"


def _not_started(config: Config) -> Iterator[str]:
    try:
        require_available(config)
    except ConfigError as error:
        yield from str(error).splitlines()


def _proposal(config: Config, num_gpus: int) -> tuple[str, ...]:
    """Settings that this release starts on so many GPUs."""
    training, engine = config.training, config.engine
    counts = {
        "training.num_gpus": training.num_gpus,
        "training.actor_gpus": training.actor_gpus,
        "training.gpus_per_node": training.gpus_per_node,
        "training.teacher_gpus": training.teacher_gpus,
        "engine.num_gpus": engine.num_gpus,
        "evaluation.judge_gpus": config.evaluation.judge_gpus,
    }
    unset = tuple(f"{key}=null" for key, count in counts.items() if count is not None)
    if engine.replicas > max(1, num_gpus):
        unset += ("engine.replicas=1",)
    if num_gpus == 0:
        ids = (("engine.gpu_ids", engine.gpu_ids), ("training.gpu_ids", training.gpu_ids))
        unset += tuple(f"{key}=[]" for key, numbers in ids if numbers)
        return (*unset, *(("training.device=cpu",) if training.device == "cuda" else ()), "engine.device=cpu")
    return (*unset, "engine.gpu_ids=0", f"training.gpu_ids={min(1, num_gpus - 1)}")

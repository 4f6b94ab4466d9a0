"""Settings and the GPUs of a machine -> which process would run where, what does not fit, and settings that would.

GPUs are dealt out in the order of the documented launchers: the trainer's first, then the engine's, the judge's and the
teacher's. A process whose share nobody named takes the first GPU beside the others. A plan promises nothing: `up`
refuses what this release cannot start, and the plan repeats that sentence. Starts nothing and looks at no machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openclaw_rl.config.fields import mask_passwords
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one worker asks for: so many GPUs of its own, or these."""

    name: str
    num_gpus: int
    named: tuple[int, ...]
    command: str


def plan_launch(config: Config, num_gpus: int) -> LaunchPlan:
    """What `up` means with these settings on a machine with so many GPUs."""
    processes = [PlannedProcess(name="gateway, store, loops", gpus=(), command=_OWN)]
    first, most = 0, 0
    for share in _shares(config):
        gpus = share.named or tuple(range(first, first + share.num_gpus))
        first += 0 if share.named else share.num_gpus
        most = max(most, first, *(number + 1 for number in gpus))
        processes.append(PlannedProcess(name=share.name, gpus=gpus, command=_on(gpus, share.command)))
    obstacles = [*_not_fitting(config, first, most, num_gpus), *_not_started(config)]
    return LaunchPlan(
        num_gpus=num_gpus,
        processes=tuple(processes),
        obstacles=tuple(obstacles),
        proposal=_proposal(config, num_gpus) if obstacles else (),
    )


def _shares(config: Config) -> list[_Share]:
    """Of each worker; one that runs elsewhere has none, and its address is told."""
    engine, training, evaluation = config.engine, config.training, config.evaluation
    model = str(config.model.checkpoint_path or config.model.name)
    actor = training.num_ranks if training.backend == "fsdp" else training.actor_gpus or 0
    command = f"{_OWN}: {actor} processes, FSDP2" if actor > 1 else _OWN
    shares = [_Share(name="trainer", num_gpus=actor, named=training.gpu_ids, command=command)]
    if engine.url is not None or engine.urls:
        places = " ".join(map(mask_passwords, engine.urls or (str(engine.url),)))
        shares.append(_Share(name="engine", num_gpus=0, named=(), command=f"runs already: {places}"))
    else:
        num = engine.num_gpus or 0
        served = _served(config, model, max(1, num, len(engine.gpu_ids)))
        shares.append(_Share(name="engine", num_gpus=num, named=engine.gpu_ids, command=served))
    if evaluation.judge_url is not None:
        url = mask_passwords(evaluation.judge_url)
        shares.append(_Share(name="judge", num_gpus=0, named=(), command=f"runs already: {url}"))
    elif evaluation.judge_path is not None or evaluation.judge_gpus:
        judge = model if evaluation.judge_path is None else str(evaluation.judge_path)
        num, named = evaluation.judge_gpus or 0, evaluation.judge_gpu_ids
        command = _served(config, judge, max(1, len(named)))
        shares.append(_Share(name="judge", num_gpus=num, named=named, command=command))
    if training.teacher_url is not None:
        url = mask_passwords(training.teacher_url)
        shares.append(_Share(name="teacher", num_gpus=0, named=(), command=f"runs already: {url}"))
    elif training.teacher_path is not None or training.teacher_gpus:
        num = training.teacher_gpus or 0
        shares.append(_Share(name="teacher", num_gpus=num, named=(), command="read by the trainer"))
    return shares


def _served(config: Config, model: str, num_gpus: int) -> str:
    engine = config.engine
    if engine.type == "vllm" and engine.url is None and not engine.urls:
        spread = f" --tensor-parallel-size {num_gpus // engine.replicas}" if num_gpus > engine.replicas else ""
        return f"vllm serve {model}{spread}"
    return f"{_OWN}: {num_gpus} engines as one" if num_gpus > 1 else _OWN


def _on(gpus: tuple[int, ...], command: str) -> str:
    named = ",".join(map(str, gpus))
    return f"CUDA_VISIBLE_DEVICES={named} {command}" if gpus and command.startswith("vllm ") else command


def _not_fitting(config: Config, asked: int, most: int, num_gpus: int) -> Iterator[str]:
    """`asked` are the GPUs of all shares, `most` also what was named by number."""
    named = config.training.num_gpus
    if named is not None and asked > named:
        yield f"the parts ask for {asked} GPUs together, and training.num_gpus is {named}: raise it, or lower theirs"
    if max(most, named or 0) > num_gpus:
        have = f"{num_gpus} GPU" + ("" if num_gpus == 1 else "s")
        yield f"{max(most, named or 0)} GPUs are asked for, and this machine has {have if num_gpus else 'none'}"


def _not_started(config: Config) -> Iterator[str]:
    try:
        require_available(config)
    except ConfigError as error:
        yield from str(error).splitlines()


def _proposal(config: Config, num_gpus: int) -> tuple[str, ...]:
    """Settings that this release starts on so many GPUs: the trainer's first, the engine's next, then the judge's."""
    training, engine, evaluation = config.training, config.engine, config.evaluation
    counts = {
        "training.num_gpus": training.num_gpus,
        "training.actor_gpus": training.actor_gpus,
        "training.gpus_per_node": training.gpus_per_node,
        "training.teacher_gpus": training.teacher_gpus,
        "engine.num_gpus": engine.num_gpus,
        "evaluation.judge_gpus": evaluation.judge_gpus,
    }
    unset = tuple(f"{key}=null" for key, count in counts.items() if count is not None)
    judges = evaluation.judge_path is not None
    if num_gpus == 0:
        here = {"training.gpu_ids": training.gpu_ids, "engine.gpu_ids": engine.gpu_ids}
        here["evaluation.judge_gpu_ids"] = evaluation.judge_gpu_ids
        none = tuple(f"{key}=[]" for key, numbers in here.items() if numbers)
        trains = ("training.device=cpu",) if training.device == "cuda" else ()
        return (*unset, *none, *_spread(config, 1), *trains, "engine.device=cpu")
    if engine.url is not None or engine.urls:
        own = (f"evaluation.judge_gpu_ids={num_gpus - 1}",) if judges else ()
        return (*unset, "training.gpu_ids=0", *own)
    own_judge = judges and num_gpus > 2
    left = max(1, num_gpus - 1 - own_judge)
    num = _power_of_two(min(left, max(1, engine.num_gpus or 0, len(engine.gpu_ids))))
    first = min(1, num_gpus - 1)
    named = ",".join(map(str, range(first, first + num)))
    judge = (f"evaluation.judge_gpu_ids={first + num if own_judge else first}",) if judges else ()
    return (*unset, "training.gpu_ids=0", f"engine.gpu_ids={named}", *_spread(config, num), *judge)


def _spread(config: Config, num: int) -> tuple[str, ...]:
    """So many GPUs for one engine of others; for the embedded one, as many engines."""
    engine = config.engine
    if engine.type in ("vllm", "sglang"):
        before = engine.vllm.tensor_parallel if engine.type == "vllm" else engine.sglang.tensor_parallel
        together = (f"engine.{engine.type}.tensor_parallel={num}",) if num != before else ()
        return (*together, *(("engine.replicas=1",) if engine.replicas > 1 else ()))
    return (f"engine.replicas={num}",) if num != engine.replicas else ()


def _power_of_two(most: int) -> int:
    """The largest: layers are spread over no other number."""
    return 1 << (most.bit_length() - 1)

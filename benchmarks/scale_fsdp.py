"""What it costs to take one step in several processes (FSDP2), and what each of them then holds in memory.

Weights are random, in the shape of the embedded model on a CPU and of one with 1.1 billion on a GPU. The same step, of
eight conversations (`--quick`: one step of two) and two epochs, by the local trainer and by so many ranks as there are
GPUs; on a CPU by two, with half of its threads each. Memory is what a process has for itself once the step is done
(RssAnon: mapped files and what idle torch takes are left out). On a CPU the local trainer maps its frozen weights;
ranks have copies of theirs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.load import LoadError
from benchmarks.scale import Chosen
from openclaw_rl.config.learning import TrainingConfig
from openclaw_rl.train.fsdp.trainer import FsdpTrainer
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.types import Candidate, Sample, StepOrder, StepReport, VersionSpan

FIGURES = {
    "fsdp_ranks": ("processes that train together", ""),
    "fsdp_lora_step_s": ("LoRA: a step by one process, s", ""),
    "fsdp_lora_over_one": ("  by all ranks over that", ""),
    "fsdp_lora_mib": ("  memory of the one process, MiB", ""),
    "fsdp_lora_rank_mib": ("  of each rank, MiB", ""),
    "fsdp_full_step_s": ("all weights: a step by one process, s", ""),
    "fsdp_full_over_one": ("  by all ranks over that", ""),
    "fsdp_full_mib": ("  memory of the one process, MiB", ""),
    "fsdp_full_rank_mib": ("  of each rank, MiB", ""),
    "fsdp_full_rank_share": ("  a rank's over the one's", ""),
}
_NUM_TURNS, _TURN_TOKENS = 3, 96


def measure(chosen: Chosen) -> Mapping[str, float]:
    model = _random_model(chosen.directory / "model")
    return asyncio.run(_measured(model, chosen))


async def _measured(model: Path, chosen: Chosen) -> dict[str, float]:
    num_ranks = torch.cuda.device_count() or 2
    threads, device = os.cpu_count() or 1, "cuda" if torch.cuda.is_available() else "cpu"
    options = {"threads": threads, "device": device, "dtype": "auto"}
    found: dict[str, float] = {"fsdp_ranks": num_ranks}
    for name, use_lora in (("lora", True), ("full", False)):
        one = LocalTrainer(model, chosen.directory / "one", options)
        one_s, (one_mib,) = await _steps(one, use_lora, chosen)
        many = FsdpTrainer(model, chosen.directory / "many", options, num_ranks=num_ranks)
        many_s, each_mib = await _steps(many, use_lora, chosen)
        found |= {
            f"fsdp_{name}_step_s": one_s,
            f"fsdp_{name}_over_one": many_s / one_s,
            f"fsdp_{name}_mib": one_mib,
            f"fsdp_{name}_rank_mib": max(each_mib),
        }
    return {**found, "fsdp_full_rank_share": found["fsdp_full_rank_mib"] / found["fsdp_full_mib"]}


async def _steps(trainer: LocalTrainer, use_lora: bool, chosen: Chosen) -> tuple[float, list[float]]:
    """The median seconds of a step, and the MiB that each process has for itself then."""
    folder = trainer.new_checkpoint("local", 1).parent
    times: list[float] = []
    try:
        num_sessions = 2 if chosen.quick else 8
        await trainer.rehearse(_order(0, None, use_lora, num_sessions))
        report: StepReport | None = None
        for number in range(1, 2 if chosen.quick else 5):
            report = await trainer.step(_order(number, report, use_lora, num_sessions))
            if report.state != "done":
                raise LoadError(f"the step was {report.state}: {report.reason}")
            times.append(report.metrics["step/seconds"])
        pids = trainer.pids if isinstance(trainer, FsdpTrainer) else [trainer.pid or 0]
        idle = _idle_mib()
        return median(times), [_own_mib(pid) - idle for pid in pids]
    finally:
        await trainer.close()
        shutil.rmtree(folder, ignore_errors=True)


def _order(number: int, parent: StepReport | None, use_lora: bool, num_sessions: int) -> StepOrder:
    settings: dict[str, Any] = json.loads(TrainingConfig().model_dump_json())
    settings |= {"use_lora": use_lora, "num_epochs": 2, "learning_rate": 1e-4}
    return StepOrder(
        line="local",
        number=max(1, number),
        parent=None if parent is None else parent.weights,
        parent_number=max(0, number - 1),
        seed=1,
        settings=settings,
        samples=tuple(_samples(number, num_sessions)),
    )


def _samples(number: int, num_sessions: int) -> Sequence[Sample]:
    """Conversations whose turns grow out of each other, each with one hint."""
    drawn, made = random.Random(number), list[Sample]()
    for session in range(num_sessions):
        said: tuple[int, ...] = (1,)
        for turn in range(_NUM_TURNS):
            prompt = said + tuple(drawn.randrange(3, 8000) for _ in range(_TURN_TOKENS))
            answer = tuple(drawn.randrange(3, 8000) for _ in range(_TURN_TOKENS // 2))
            said = prompt + answer
            size = len(answer)
            made.append(
                Sample(
                    id=f"s{number}-{session}.{turn}",
                    line="local",
                    kind="turn",
                    session=f"s{session}",
                    index=turn,
                    prompt_index=turn,
                    created_at=0.0,
                    prompt_ids=prompt,
                    response_ids=answer,
                    loss_mask=(True,) * size,
                    advantages=(1.0,) * size,
                    logprobs=(-9.0,) * size,
                    temperature=1.0,
                    on_policy=True,
                    reward=1.0,
                    w_rl=0.2,
                    w_opd=1.0,
                    candidates=(Candidate(hint="h", num_shared=len(prompt) - 4, suffix_ids=tuple(range(5, 25))),),
                    version_spans=(VersionSpan("v0", 0, size),),
                )
            )
    return made


def _random_model(folder: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    shape |= {"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152}
    if torch.cuda.is_available():
        shape = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
        shape |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536}
    torch.manual_seed(0)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    config = LlamaConfig(**shape, tie_word_embeddings=True, max_position_embeddings=4096)
    model: Any = LlamaForCausalLM(config)
    model.to(dtype).save_pretrained(folder)
    return folder


def _own_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def _idle_mib() -> float:
    """Of a process that has imported torch and the trainer."""
    import subprocess
    import sys

    program = "import openclaw_rl.train.worker.trainer, sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()
        time.sleep(0.1)
        found = _own_mib(idle.pid)
        idle.kill()
    return found

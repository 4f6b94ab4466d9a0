"""The settings of `engine` and `engine.sglang` and a model's files -> the command that starts SGLang."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.config import EngineConfig, SglangConfig
from openclaw_rl.engine.foreign.hosts import ServerCommand, foreign_host
from openclaw_rl.engine.foreign.installed import find_installed
from openclaw_rl.engine.foreign.linked import without_ours
from openclaw_rl.engine.sglang.dialect import SglangDialect
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.model.files import ModelFiles

_ALWAYS = ("--enable-lora", "--lora-target-modules", "all", "--enable-priority-scheduling")
"""What `SglangDialect.check` asks for."""


def sglang_host(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str) -> Supervisor:
    return foreign_host(config, model, socket, name=name, dialect=SglangDialect(), command=sglang_command)


def sglang_command(config: EngineConfig, model: ModelFiles, place: Path, port: int) -> ServerCommand:
    settings = config.sglang
    found = find_installed(
        "sglang",
        ("sglang",),
        python=settings.python,
        is_default=settings.python == SglangConfig().python,
        oldest=SglangDialect.oldest,
        how="`pip install sglang` in an environment of its own, on a GPU machine",
    )
    window = min(model.context_window, (config.context_window or model.context_window) + 1)
    options = {
        "model-path": without_ours(model, place),
        "served-model-name": model.name.rstrip("/").rpartition("/")[2],
        "host": "127.0.0.1",
        "port": port,
        "dtype": config.dtype,
        "context-length": window,
        "max-running-requests": config.max_active,
        "max-lora-rank": config.max_lora_rank,
        "max-loras-per-batch": settings.max_loras,
        # One more, for the adapter by which the server is known again.
        "max-loaded-loras": max(settings.max_loras, settings.max_loaded_loras) + 1,
        "tp-size": settings.tensor_parallel,
    }
    if model.tokenizer_path != model.path:
        options["tokenizer-path"] = model.tokenizer_path
    if config.prefill_chunk is not None:
        options["chunked-prefill-size"] = config.prefill_chunk
    if settings.mem_fraction_static is not None:
        options["mem-fraction-static"] = settings.mem_fraction_static
    flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    environment = {"HF_HUB_OFFLINE": "1"}
    if config.gpu_ids:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, config.gpu_ids))
    start = (str(found.python), "-m", "sglang.launch_server")
    return ServerCommand(command=(*start, *flags, *_ALWAYS, *settings.arguments), environment=environment)

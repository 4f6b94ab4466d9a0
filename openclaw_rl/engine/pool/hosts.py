"""The settings -> a pool: several engines of ours on one machine, or servers elsewhere.

Deals the machine out: each engine of ours gets its share of the CPU's threads and of the memory for conversations, or a
GPU of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.pool.pool import Pool
from openclaw_rl.errors import ConfigError
from openclaw_rl.protocols import EngineHost

_SHARE_OF_FREE_MEMORY = 0.25
"""What one embedded engine takes on a CPU for its cache; several started at once would each take it of the same."""

_NVIDIA = Path("/dev/nvidia0")


def is_pool(config: EngineConfig) -> bool:
    """Whether several engines are to answer as one."""
    return config.replicas > 1 or bool(config.urls)


def check_pool(config: EngineConfig) -> None:
    """`ConfigError` for a pool that cannot be."""
    if config.urls and config.url is not None:
        raise ConfigError("engine.url names one server and engine.urls several; give one of both")
    if config.urls and config.replicas > 1:
        raise ConfigError(
            f"engine.urls names {len(config.urls)} servers that run already, and engine.replicas={config.replicas} "
            "starts engines here; give one of both"
        )
    if twice := {url for url in config.urls if config.urls.count(url) > 1}:
        raise ConfigError(f"engine.urls names {_place(sorted(twice)[0])} twice; each server counts once")
    each = _gpus_of_one(config)
    if config.gpu_ids and config.replicas > 1 and len(config.gpu_ids) != config.replicas * each:
        many = "a GPU" if each == 1 else f"{each} GPUs"
        raise ConfigError(
            f"engine.replicas={config.replicas} engines need {many} each, and engine.gpu_ids names "
            f"{len(config.gpu_ids)}; name {config.replicas * each} GPUs"
        )
    if config.gpu_ids and len(config.gpu_ids) < each:
        raise ConfigError(
            f"engine.{config.type}.tensor_parallel={each} spreads layers over {each} GPUs, and engine.gpu_ids names "
            f"{len(config.gpu_ids)}; name all of them"
        )
    if config.replicas > 1 and not config.gpu_ids and config.device != "cpu" and _NVIDIA.exists():
        raise ConfigError(
            f"engine.replicas={config.replicas} engines would share one GPU; give each its own with engine.gpu_ids="
            f"[{','.join(map(str, range(config.replicas)))}], or set engine.device=cpu"
        )


def replicas(config: EngineConfig, *, num_cores: int, free_bytes: int) -> list[EngineConfig]:
    """The settings of each engine of ours."""
    num, each = config.replicas, _gpus_of_one(config)
    num_threads = config.threads or num_cores
    kv_bytes = config.kv_bytes
    if kv_bytes is None and not config.gpu_ids:
        kv_bytes = int(free_bytes * _SHARE_OF_FREE_MEMORY) // num
    return [
        config.model_copy(
            update={
                "replicas": 1,
                "threads": max(1, num_threads // num + (place < num_threads % num)),
                "kv_bytes": kv_bytes,
                "gpu_ids": config.gpu_ids[place * each : (place + 1) * each],
            }
        )
        for place in range(num)
    ]


def _gpus_of_one(config: EngineConfig) -> int:
    """Over how many GPUs each engine is spread."""
    spread = {"vllm": config.vllm.tensor_parallel, "sglang": config.sglang.tensor_parallel}
    return spread.get(config.type, 1)


MakeHost = Callable[[EngineConfig, Path, str], EngineHost]
"""From the settings of one engine, its socket and what logs call it."""


def pool_of_replicas(config: EngineConfig, socket: Path, make: MakeHost, *, name: str) -> Pool:
    """Engines of ours, each on a socket of its own beside `socket`."""
    cores = os.cpu_count() or 1
    each = replicas(config, num_cores=cores, free_bytes=psutil.virtual_memory().available)
    hosts = {}
    for number, one in enumerate(each, 1):
        hosts[f"{name} {number}"] = make(one, _beside(socket, number), f"{name} {number}")
    return _pool(config, hosts)


def pool_of_servers(config: EngineConfig, socket: Path, make: MakeHost, *, name: str) -> Pool:
    """Servers that run already; each is called by its place, after `name`."""
    hosts = {}
    for number, url in enumerate(config.urls, 1):
        one = config.model_copy(update={"url": url, "urls": ()})
        hosts[_place(url)] = make(one, _beside(socket, number), f"{name} {_place(url)}")
    return _pool(config, hosts)


def _beside(socket: Path, number: int) -> Path:
    return socket.with_name(f"{socket.stem}-{number}{socket.suffix}")


def _pool(config: EngineConfig, hosts: dict[str, EngineHost]) -> Pool:
    return Pool(hosts, wait_s=config.wait_s, max_waiting=config.max_waiting, silent_s=config.silent_s)


def _place(url: str) -> str:
    """Host, port and path: no password."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"

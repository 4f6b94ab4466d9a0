"""This machine to facts for `checks.py`. What may crash or is slow to import (torch) is asked in a child process."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from openclaw_rl.cli.doctor.checks import ModelFacts, OpenFile, TorchFacts
from openclaw_rl.config import ModelConfig
from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import read_architecture
from openclaw_rl.model.embedded import SMOLLM2, find_damage
from openclaw_rl.model.files import EMBEDDED_NAME, ModelFiles, inspect_folder
from openclaw_rl.views.tokens import kept_of_hub

_CGROUP = Path("/sys/fs/cgroup")
_CHILD_TIMEOUT_S = 120.0
_ASK_TORCH = """
import json, torch
cuda = torch.cuda
names = [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda.is_available() else []
print(json.dumps({"version": torch.__version__, "devices": names}))
"""


def cpu_flags() -> frozenset[str]:
    """The features that the kernel lists; empty where it lists none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset({"asimd"} if platform.machine() == "arm64" else ())
    listed = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(listed, "").split())


def num_cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it, macOS does not
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def gpus_of_driver() -> list[str]:
    """What `nvidia-smi` lists; nothing where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHILD_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def gpu_bytes(listed: Sequence[str]) -> list[int]:
    """The memory of each GPU, from what the driver lists."""
    found = [re.search(r", (\d+) MiB$", line) for line in listed]
    return [int(match[1]) << 20 for match in found if match]


def is_ours(model: ModelFiles | None) -> bool | None:
    """Whether our own network computes the model; None where there is none to look at."""
    return None if model is None else read_architecture(model.path) is not None


def torch_facts() -> TorchFacts:
    command = [sys.executable, "-c", _ASK_TORCH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHILD_TIMEOUT_S, check=False)
        if done.returncode != 0:
            return TorchFacts(
                error=f"torch cannot be used: {done.stderr.strip().rpartition(chr(10))[2] or done.returncode}"
            )
        raw = json.loads(done.stdout)
        return TorchFacts(version=raw["version"], devices=tuple(raw["devices"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return TorchFacts(error=f"torch cannot be asked: {error}")


def memory() -> tuple[int, int]:
    """Total and available bytes, within the limit of this container, which psutil does not know."""
    machine = psutil.virtual_memory()
    total, available = int(machine.total), int(machine.available)
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())["anon"]
    except (OSError, ValueError, KeyError):  # no container, or a limit of "max"
        return total, available
    return min(total, limit), min(available, max(0, limit - int(used)))


def free_bytes(path: Path) -> int:
    """What is free where `path` lies, or would lie."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def why_not_listen(host: str, port: int) -> str | None:
    """None if a server could listen there now."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return None


def open_files(data_dir: Path) -> list[OpenFile] | None:
    """What others can reach of the data directory; None if it does not exist."""
    if not data_dir.exists():
        return None
    found: list[OpenFile] = []
    for path in (data_dir, *data_dir.glob("*"), *data_dir.glob("run/*")):
        status = path.lstat()
        if path.is_symlink():
            continue
        wanted = 0o700 if path.is_dir() else 0o600
        foreign = status.st_uid != os.geteuid()
        if foreign or status.st_mode & 0o077:
            found.append(OpenFile(path=path, mode=status.st_mode & 0o7777, wanted=wanted, foreign=foreign))
    return found


def model_facts(model: ModelConfig, *, weights: bool = True) -> ModelFacts:
    """The configured model as it is on this disk, without `weights` as far as it is needed here. Fetches nothing; reads
    every byte of the embedded one."""
    try:
        if model.checkpoint_path is None and model.name == EMBEDDED_NAME:
            return _embedded_facts(model)
        folder = model.checkpoint_path or Path(model.name).expanduser()
        kept = folder if model.checkpoint_path is not None or folder.is_dir() else kept_of_hub(model.name)
        return ModelFacts(name=model.name, files=None if kept is None else _inspect(model, kept, weights=weights))
    except ModelError as error:
        return ModelFacts(name=model.name, problem=str(error))


def _embedded_facts(model: ModelConfig) -> ModelFacts:
    folder = model.cache_dir / EMBEDDED_NAME
    if not folder.exists():
        return ModelFacts(name=model.name)
    damage = find_damage(SMOLLM2, model.cache_dir, full=True)
    if damage is not None:
        return ModelFacts(name=model.name, problem=f"{folder} is damaged: {damage}")
    return ModelFacts(name=model.name, files=_inspect(model, folder))


def _inspect(model: ModelConfig, folder: Path, *, weights: bool = True) -> ModelFiles:
    return inspect_folder(model.name, folder, tokenizer_path=model.tokenizer_path or folder, weights=weights)

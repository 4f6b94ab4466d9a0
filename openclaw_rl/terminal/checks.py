"""Facts about this machine to findings: what is in order, what deserves a remark, what is broken, and the remedy.

Pure: the facts come from `probes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openclaw_rl.config import AVAILABLE_ENGINES, EngineConfig
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.store.sqlite import OLDEST_SQLITE
from openclaw_rl.terminal.backlog import Backlog
from openclaw_rl.terminal.connect_clients import BIG_MODEL, Client
from openclaw_rl.terminal.screen import size

State = Literal["ok", "remark", "broken"]

GB = 1_000_000_000
_WORKER_BYTES = 1 * GB
"""What the worker needs beside the weights: torch and its libraries about 0.5 GB, the rest for caches."""
_AGENT_WINDOW = 32_768
_CPU_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX",
    "asimd": "NEON",
}
_OLDEST_PYTHON = (3, 11)
_SQLITE_WITHOUT_RESET_BUG = (3, 51, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `remedy` says what to do about it."""

    name: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """What torch says about itself in a process of its own; `error` when it could not even be imported."""

    version: str = ""
    devices: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The configured model as it lies on this machine: whole, damaged (`problem`), or not there yet."""

    name: str
    files: ModelFiles | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """Something in the data directory that others than its owner can reach, or that belongs to somebody else."""

    path: Path
    mode: int
    wanted: int
    foreign: bool = False


def check_python(version: tuple[int, int, int]) -> Finding:
    text = ".".join(map(str, version))
    if version < _OLDEST_PYTHON:
        return Finding(name="Python", state="broken", text=f"{text} is too old", remedy="use Python 3.11 or newer")
    return Finding(name="Python", state="ok", text=text)


def check_cpu(num_cores: int, flags: AbstractSet[str]) -> Finding:
    features = [name for flag, name in _CPU_FEATURES.items() if flag in flags]
    cores = f"{num_cores} core{'' if num_cores == 1 else 's'}"
    return Finding(name="CPU", state="ok", text=", ".join([cores, *features]))


def check_bfloat16(problem: str | None, engine: EngineConfig) -> Finding:
    """`problem` is what the child process died of; a CPU may advertise what it cannot do."""
    if problem is None:
        return Finding(name="bfloat16", state="ok", text="the kernels work on this CPU")
    if engine.dtype == "bfloat16" and engine.device != "cuda":
        return Finding(name="bfloat16", state="broken", text=problem, remedy="set engine.dtype=float32 (or auto)")
    return Finding(name="bfloat16", state="remark", text=problem, remedy="nothing to do: CPUs compute in float32 here")


def check_gpu(seen: Sequence[str], torch: TorchFacts, engine: EngineConfig) -> Finding:
    """`seen` is what the driver lists, `torch` what the engine could use."""
    if torch.error:
        return Finding(name="GPU", state="broken", text=torch.error, remedy="run `make setup`: it installs torch")
    if torch.devices:
        return Finding(name="GPU", state="ok", text=f"{', '.join(torch.devices)} (torch {torch.version})")
    state: State = "broken" if engine.device == "cuda" else "remark" if seen else "ok"
    if seen:
        text = f"the driver lists {', '.join(seen)}, but torch {torch.version} cannot use it"
        return Finding(name="GPU", state=state, text=text, remedy="install a CUDA build of torch for this driver")
    remedy = "set engine.device=auto" if state == "broken" else ""
    return Finding(
        name="GPU", state=state, text=f"none; the model runs on the CPU (torch {torch.version})", remedy=remedy
    )


def check_memory(*, total: int, available: int, weight_bytes: int | None) -> Finding:
    text = f"{size(available)} of {size(total)} available"
    if weight_bytes is None:
        return Finding(name="memory", state="ok", text=text)
    needed = weight_bytes + _WORKER_BYTES
    text += f"; the model takes about {size(needed)}"
    if total < needed:
        return Finding(name="memory", state="broken", text=text, remedy="choose a smaller model.name, or more memory")
    if available < needed:
        return Finding(name="memory", state="remark", text=text, remedy="end other programs, or expect it to be slow")
    return Finding(name="memory", state="ok", text=text)


def check_disk(name: str, path: Path, *, free: int, needed: int, setting: str) -> Finding:
    text = f"{size(free)} free in {path}"
    if free < needed:
        remedy = f"free {size(needed)} there, or move it with {setting}"
        return Finding(name=name, state="broken", text=text, remedy=remedy)
    if free < 2 * needed:
        return Finding(name=name, state="remark", text=text, remedy=f"it fills up soon; {setting} moves it")
    return Finding(name=name, state="ok", text=text)


def check_port(host: str, port: int, *, problem: str | None, ours: bool) -> Finding:
    """`problem` is why nobody can listen there now; `ours`: because our own server does."""
    where = f"{host}:{port}"
    if ours:
        return Finding(name="port", state="ok", text=f"{where} is used by our own server")
    if problem is not None:
        remedy = "choose another with --port (or gateway.host), or end what uses it"
        return Finding(name="port", state="broken", text=f"cannot listen on {where}: {problem}", remedy=remedy)
    return Finding(name="port", state="ok", text=f"{where} is free" if port else "any free one")


def check_modes(data_dir: Path, open_files: Sequence[OpenFile] | None) -> Finding:
    """`open_files` None: there is no data directory yet."""
    if open_files is None:
        return Finding(name="data", state="ok", text=f"{data_dir} is made at the first start")
    if not open_files:
        return Finding(name="data", state="ok", text=f"{data_dir} is private (0700, files 0600)")
    first = open_files[0]
    more = f" and {len(open_files) - 1} more" if len(open_files) > 1 else ""
    if first.foreign:
        text = f"{first.path}{more} belongs to another user"
        return Finding(name="data", state="broken", text=text, remedy="run as its owner, or choose another --data-dir")
    text = f"{first.path}{more}: others can reach it (mode {first.mode:04o})"
    remedy = "; ".join(f"chmod {wanted.wanted:04o} {wanted.path}" for wanted in open_files[:4])
    return Finding(name="data", state="broken", text=text, remedy=remedy)


def check_sqlite(version: tuple[int, int, int]) -> Finding:
    text = ".".join(map(str, version))
    if version < OLDEST_SQLITE:
        return Finding(name="SQLite", state="broken", text=f"{text} is too old", remedy="use a newer Python build")
    if version < _SQLITE_WITHOUT_RESET_BUG:
        text += "; its WAL-reset bug (before 3.51.3) cannot strike: one process writes, and only that one checkpoints"
    return Finding(name="SQLite", state="ok", text=text)


def check_model(model: ModelFacts) -> Finding:
    if model.problem:
        remedy = "`python -m openclaw_rl.model` (or `make setup`) checks every byte and fetches it again where it can"
        return Finding(name="model", state="broken", text=model.problem, remedy=remedy)
    if model.files is None:
        return Finding(
            name="model", state="remark", text=f"{model.name} is not here yet", remedy="the first start fetches it"
        )
    text = f"{model.name}: {model.files.architecture}, {size(model.files.weight_bytes)}, whole"
    return Finding(name="model", state="ok", text=text)


def check_window(context_window: int, connected: Sequence[Client] = ()) -> Finding:
    """`connected`: the clients that ask here."""
    if context_window >= _AGENT_WINDOW:
        return Finding(name="window", state="ok", text=f"{context_window} tokens")
    remedy = f"for agents set model.name={BIG_MODEL}, or alike"
    if not connected:
        needed = f"agents such as OpenClaw, which need {_AGENT_WINDOW}"
        text = f"{context_window} tokens: enough to chat, too short for {needed}"
        return Finding(name="window", state="remark", text=text, remedy=remedy)
    short = [client for client in connected if client.needs_window > context_window]
    if short:
        names = ", ".join(f"{client.name} (needs {client.needs_window})" for client in short)
        return Finding(
            name="window", state="remark", text=f"{context_window} tokens: too short for {names}", remedy=remedy
        )
    names = ", ".join(client.name for client in connected)
    return Finding(name="window", state="ok", text=f"{context_window} tokens: enough for {names}")


def check_engine(engine: EngineConfig) -> Finding:
    if engine.type not in AVAILABLE_ENGINES:
        remedy = f"set engine.type to one of: {', '.join(AVAILABLE_ENGINES)}"
        return Finding(name="engine", state="broken", text=f"{engine.type} comes with a later release", remedy=remedy)
    return Finding(name="engine", state="ok", text=engine.type)


def check_server(url: str | None, *, answers: bool, waiting_for: str | None) -> Finding:
    """`url` is what a server left in the data directory, `waiting_for` what one that answers is not ready for."""
    if url is None:
        return Finding(name="server", state="ok", text="not running", remedy="`openclaw-rl up` starts it")
    if not answers:
        text = f"nobody answers at {url}; was the server killed?"
        return Finding(name="server", state="remark", text=text, remedy="`openclaw-rl up` starts it again")
    if waiting_for is not None:
        text = f"runs at {url}, but is not ready: {waiting_for}"
        return Finding(name="server", state="remark", text=text, remedy="wait, or look into run/log.jsonl")
    return Finding(name="server", state="ok", text=f"ready at {url}")


def check_learning(backlog: Backlog | None) -> Finding:
    """`backlog` None: there is no store yet."""
    if backlog is None:
        return Finding(name="learning", state="ok", text="nothing to learn from yet")
    if backlog.paused is not None:
        remedy = (
            "look at the judge: `openclaw-rl judge --replay` compares it with what it said before; it is tried again"
        )
        return Finding(name="learning", state="remark", text=f"paused: {backlog.paused}", remedy=remedy)
    if backlog.training_paused is not None:
        text, remedy = f"training is paused: {backlog.training_paused}", "it is tried again; run/log.jsonl has more"
        return Finding(name="learning", state="remark", text=text, remedy=remedy)
    return Finding(name="learning", state="ok", text=backlog.waiting or "every reaction is judged")

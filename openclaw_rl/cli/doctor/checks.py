"""Facts about this machine to findings: what is in order, what deserves a remark, what is broken, and the remedy.

Pure: the facts come from `probes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.cli.connect.clients import BIG_MODEL, Client
from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.advice import Advice
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.store import OLDEST_SQLITE, PostgresFacts
from openclaw_rl.store.audit import Audited
from openclaw_rl.views.checks import (
    broken,
    check_disk,
    check_engines,
    check_judge,
    check_learning,
    check_store,
    ok,
    remark,
)
from openclaw_rl.views.health import CheckResult
from openclaw_rl.views.words import size

__all__ = [
    "broken",
    "check_audited",
    "check_disk",
    "check_engines",
    "check_judge",
    "check_learning",
    "check_store",
    "ok",
    "remark",
]

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
CONNECTIONS_NEEDED = 4

_SQLITE_WITHOUT_RESET_BUG = (3, 51, 3)


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


def check_python(version: tuple[int, int, int]) -> CheckResult:
    text = ".".join(map(str, version))
    if version < _OLDEST_PYTHON:
        return broken("Python", f"{text} is too old", "use Python 3.11 or newer")
    return ok("Python", text)


def check_cpu(num_cores: int, flags: AbstractSet[str]) -> CheckResult:
    features = [name for flag, name in _CPU_FEATURES.items() if flag in flags]
    return ok("CPU", ", ".join([f"{num_cores} core{'' if num_cores == 1 else 's'}", *features]))


def check_bfloat16(problem: str | None, engine: EngineConfig) -> CheckResult:
    """`problem` is what the child process died of; a CPU may advertise what it cannot do."""
    if problem is None:
        return ok("bfloat16", "the kernels work on this CPU")
    if engine.dtype == "bfloat16" and engine.device != "cuda":
        return broken("bfloat16", problem, "set engine.dtype=float32 (or auto)")
    return remark("bfloat16", problem, "nothing to do: CPUs compute in float32 here")


def check_gpu(seen: Sequence[str], torch: TorchFacts, engine: EngineConfig) -> CheckResult:
    """`seen` is what the driver lists, `torch` what the engine could use."""
    if torch.error:
        return broken("GPU", torch.error, "run `make setup`: it installs torch")
    if torch.devices:
        return ok("GPU", f"{', '.join(torch.devices)} (torch {torch.version})")
    if seen:
        text = f"the driver lists {', '.join(seen)}, but torch {torch.version} cannot use it"
        result = broken if engine.device == "cuda" else remark
        return result("GPU", text, "install a CUDA build of torch for this driver")
    text = f"none; the model runs on the CPU (torch {torch.version})"
    return broken("GPU", text, "set engine.device=auto") if engine.device == "cuda" else ok("GPU", text)


def check_memory(*, total: int, available: int, weight_bytes: int | None) -> CheckResult:
    text = f"{size(available)} of {size(total)} available"
    if weight_bytes is None:
        return ok("memory", text)
    needed = weight_bytes + _WORKER_BYTES
    text += f"; the model takes about {size(needed)}"
    if total < needed:
        return broken("memory", text, "choose a smaller model.name, or more memory")
    if available < needed:
        return remark("memory", text, "end other programs, or expect it to be slow")
    return ok("memory", text)


def check_port(host: str, port: int, *, problem: str | None, ours: bool) -> CheckResult:
    """`problem` is why nobody can listen there now; `ours`: because our own server does."""
    where = f"{host}:{port}"
    if ours:
        return ok("port", f"{where} is used by our own server")
    if problem is not None:
        remedy = "choose another with --port (or gateway.host), or end what uses it"
        return broken("port", f"cannot listen on {where}: {problem}", remedy)
    return ok("port", f"{where} is free" if port else "any free one")


def check_modes(data_dir: Path, open_files: Sequence[OpenFile] | None) -> CheckResult:
    """`open_files` None: there is no data directory yet."""
    if open_files is None:
        return ok("data", f"{data_dir} is made at the first start")
    if not open_files:
        return ok("data", f"{data_dir} is private (0700, files 0600)")
    first = open_files[0]
    more = f" and {len(open_files) - 1} more" if len(open_files) > 1 else ""
    if first.foreign:
        text = f"{first.path}{more} belongs to another user"
        return broken("data", text, "run as its owner, or choose another --data-dir")
    text = f"{first.path}{more}: others can reach it (mode {first.mode:04o})"
    return broken("data", text, "; ".join(f"chmod {each.wanted:04o} {each.path}" for each in open_files[:4]))


def check_sqlite(version: tuple[int, int, int]) -> CheckResult:
    text = ".".join(map(str, version))
    if version < OLDEST_SQLITE:
        return broken("SQLite", f"{text} is too old", "use a newer Python build")
    if version < _SQLITE_WITHOUT_RESET_BUG:
        text += "; its WAL-reset bug (before 3.51.3) cannot strike: one process writes, and only that one checkpoints"
    return ok("SQLite", text)


def check_model(model: ModelFacts) -> CheckResult:
    if model.problem:
        remedy = "`python -m openclaw_rl.model` (or `make setup`) checks every byte and fetches it again where it can"
        return broken("model", model.problem, remedy)
    if model.files is None:
        return remark("model", f"{model.name} is not here yet", "the first start fetches it")
    return ok("model", f"{model.name}: {model.files.architecture}, {size(model.files.weight_bytes)}, whole")


def check_window(context_window: int, connected: Sequence[Client] = ()) -> CheckResult:
    """`connected`: the clients that ask here."""
    text = f"{context_window} tokens"
    if context_window >= _AGENT_WINDOW:
        return ok("window", text)
    remedy = f"for agents set model.name={BIG_MODEL}, or alike"
    if not connected:
        needed = f"agents such as OpenClaw, which need {_AGENT_WINDOW}"
        return remark("window", f"{text}: enough to chat, too short for {needed}", remedy)
    if short := [client for client in connected if client.needs_window > context_window]:
        names = ", ".join(f"{client.name} (needs {client.needs_window})" for client in short)
        return remark("window", f"{text}: too short for {names}", remedy)
    return ok("window", f"{text}: enough for {', '.join(client.name for client in connected)}")


def check_engine(engine: EngineConfig) -> CheckResult:
    return ok("engine", engine.type)


def check_advice(advice: Advice) -> CheckResult:
    """Which engine suits this machine and this model."""
    return remark("advice", advice.text, advice.remedy) if advice.remedy else ok("advice", advice.text)


def check_server(url: str | None, *, answers: bool, waiting_for: str | None) -> CheckResult:
    """`url` is what a server left in the data directory, `waiting_for` what one that answers is not ready for."""
    if url is None:
        return ok("server", "not running", "`openclaw-rl up` starts it")
    if not answers:
        return remark("server", f"nobody answers at {url}; was the server killed?", "`openclaw-rl up` starts it again")
    if waiting_for is not None:
        return remark("server", f"runs at {url}, but is not ready: {waiting_for}", "wait, or look into run/log.jsonl")
    return ok("server", f"ready at {url}")


def check_shared_store(facts: PostgresFacts) -> CheckResult:
    """The server of `store.url`, which answers."""
    text = f"PostgreSQL {facts.version}, {facts.num_connections} of {facts.max_connections} connections in use"
    if facts.is_replica:
        return broken("store", f"{text}: a replica, which cannot be written", "name the primary server in store.url")
    if facts.unsafe:
        off = " and ".join(facts.unsafe)
        remedy = "switch on there what is off, unless this data may be lost"
        return remark("store", f"{text}; {off} off: a power cut may lose acknowledged turns", remedy)
    if facts.max_connections - facts.num_connections < CONNECTIONS_NEEDED:
        return remark("store", text, f"raise max_connections there: each process takes {CONNECTIONS_NEEDED}")
    return ok("store", f"{text}; what is deleted is not overwritten there (docs/postgres.md)")


def check_audited(audited: Audited, num_damaged: int) -> CheckResult:
    """What `--deep` compared."""
    counts = f"{audited.num_turns} turns of {audited.num_sessions} conversations, {audited.num_versions} versions"
    if num_damaged:
        return remark("audit", f"{counts} compared", "what is not named above is whole, and can be read")
    return ok("audit", f"{counts}: all are what their digests say")

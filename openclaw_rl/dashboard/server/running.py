"""The parts that run -> what the page tells of them: engines, the trainer, memory, disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from openclaw_rl.config import Config
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.protocols import EngineGroup, EngineHost, ReadStore
from openclaw_rl.views.checks import check_disk, check_engines
from openclaw_rl.views.health import CheckResult
from openclaw_rl.views.page.loops import HOUR_S
from openclaw_rl.views.page.machine import DiskTold, EngineTold, Light, TrainerTold

_DATA_BYTES = 1_000_000_000
"""What `doctor` wants to be free."""
_SAMPLED = "openclaw_rl_sampled_tokens_total"
_SHORTEST_S = 1.0
"""Over a shorter time a rate is noise."""
_LIGHTS: Mapping[str, Light] = {
    "answers": "ok",
    "starting": "busy",
    "catches up": "busy",
    "silent": "broken",
    "down": "broken",
}
_WORKERS = {"engine": "openclaw_rl.engine.worker", "trainer": "openclaw_rl.train.worker"}


class Speed:
    """A counter that only grows -> how fast, since it was looked at before."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        self._told: float | None = None

    def of(self, count: float) -> float | None:
        now = time.monotonic()
        if self._before is None:
            self._before = now, count
        elif now - self._before[0] >= _SHORTEST_S:
            self._told = (count - self._before[1]) / (now - self._before[0])
            self._before = now, count
        return self._told


def tell_engines(
    host: EngineHost, metrics: Metrics, rate: Speed, memory: Mapping[str, int], *, num_running: int
) -> tuple[EngineTold, ...]:
    """Each of them; several that answer as one share a rate. `num_running`: answers under way, of them all."""
    state, tokens_per_s = host.state, rate.of(metrics.registry.get_sample_value(_SAMPLED) or 0.0)
    facts = ("", "", ()) if state is None else (state.device, state.model, state.versions)
    if isinstance(host, EngineGroup):
        return tuple(
            EngineTold(
                name=one.name,
                light=_LIGHTS[one.health],
                words=one.reason or one.health,
                device=facts[0],
                model=facts[1],
                versions=facts[2],
                num_running=one.num_running,
                num_restarts=one.num_restarts,
                tokens_per_s=tokens_per_s,
                memory_bytes=None,
            )
            for one in host.health
        )
    return (
        EngineTold(
            name="engine",
            light="ok" if host.is_ready else "broken" if host.last_error else "busy",
            words="answers" if host.is_ready else host.last_error or "is starting",
            device=facts[0],
            model=facts[1],
            versions=facts[2],
            num_running=num_running,
            num_restarts=host.num_restarts,
            tokens_per_s=tokens_per_s,
            memory_bytes=memory.get("engine"),
        ),
    )


def tell_trainer(rows: ReadStore, config: Config, memory: Mapping[str, int]) -> TrainerTold:
    """By its steps; one that runs elsewhere tells no memory."""
    recent, newest = rows.steps_since(None, time.time() - HOUR_S), rows.newest_steps(limit=1)
    metrics = newest[0].metrics if newest else {}
    took, tokens = metrics.get("step/seconds"), metrics.get("step/tokens")
    is_busy, paused = any(one.state == "planned" for one in recent), rows.flag("train.paused")
    light: Light = "broken" if paused is not None else "busy" if is_busy else "ok"
    return TrainerTold(
        light=light,
        words=paused or ("takes a step" if is_busy else "waits for samples"),
        backend=config.training.backend,
        steps=sum(one.state == "done" for one in recent),
        last_step_s=took,
        tokens_per_s=tokens / took if took and tokens is not None else None,
        memory_bytes=memory.get("trainer"),
        gpu=", ".join(f"GPU {number}" for number in config.training.gpu_ids),
    )


def worker_memory() -> dict[str, int]:
    """What our worker processes hold alone, by what they are. Blocking; processes may end meanwhile."""
    held: dict[str, int] = {}
    for child in psutil.Process().children(recursive=True):
        try:
            words = child.cmdline()
            for name, module in _WORKERS.items():
                if any(word.startswith(module) for word in words):
                    told = child.memory_info()
                    held[name] = held.get(name, 0) + int(told.rss - getattr(told, "shared", 0))
        except psutil.Error:
            continue
    return held


def tell_disk(config: Config) -> DiskTold:
    """Blocking."""
    data_dir = config.store.data_dir
    versions = Path(config.training.save_path or data_dir / "versions")
    usage = shutil.disk_usage(data_dir)
    store = sum(path.stat().st_size for path in data_dir.glob("*.sqlite3*"))
    weights = sum(path.stat().st_size for path in versions.rglob("*") if path.is_file()) if versions.is_dir() else 0
    return DiskTold(store_bytes=store, versions_bytes=weights, free_bytes=usage.free, total_bytes=usage.total)


def running_remarks(host: EngineHost, config: Config, disk: DiskTold) -> list[CheckResult]:
    """As `doctor` tells them."""
    told = []
    if isinstance(host, EngineGroup):
        told.append(check_engines([(one.name, one.health, one.reason) for one in host.health]))
    elif host.last_error:
        told.append(check_engines([("engine", "down", host.last_error)]))
    where = config.store.data_dir
    told.append(check_disk("disk", where, free=disk.free_bytes, needed=_DATA_BYTES, setting="--data-dir"))
    return told

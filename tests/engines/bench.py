"""The engines that the conformance suite is run on, each with what the suite may do to it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from openclaw_rl.config import load_config
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.engine.registry import make_host
from openclaw_rl.engine.worker.life import ProcessLife
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.files import ModelFiles, inspect_folder
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import Engine
from openclaw_rl.types import Publication, WeightsRef
from tests.fakes.foreign_servers import ForeignServer, SglangServer, VllmServer

MAX_ACTIVE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An engine under test. `tolerance`: how far, in nats, two readings of the same tokens may be apart."""

    host: Supervisor
    model: ModelFiles
    adapters: Path
    kill: Callable[[], Awaitable[None]]
    """Ends the server as a crash would; it comes back."""
    tolerance: float
    window: int

    @property
    def engine(self) -> Engine:
        return self.host.engine

    def version(self, label: str, seed: int, *, live: bool = False, rank: int = 8) -> Publication:
        """An adapter that changes what is said."""
        folder = self.adapters / f"{label}-{seed}"
        if not folder.exists():
            save_adapter(self.model, folder, seed=seed, rank=rank)
        return Publication(version=label, weights=WeightsRef.of_folder(folder, folder_sha256(folder)), live=live)


def save_adapter(model: ModelFiles, folder: Path, *, seed: int, rank: int = 8) -> None:
    import json

    arch = Architecture.from_config(json.loads((model.path / "config.json").read_text()))
    assert arch is not None
    AdapterWeights.random(
        arch, rank=rank, alpha=2.0 * rank, seed=seed, b_std=0.02, device=torch.device("cpu"), dtype=torch.float32
    ).save(folder)


@asynccontextmanager
async def running(host: Supervisor, *, timeout_s: float = 60.0) -> AsyncIterator[Supervisor]:
    """Until it is left; raises what ends it at the start."""
    task = asyncio.create_task(host.run())
    waiting = asyncio.create_task(host.wait_ready(timeout_s))
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel() if task.done() else waiting.result()
        if task.done():
            task.result()
        yield host
    finally:
        await host.engine.close()


def make(kind: str, model: ModelFiles, place: Path, *settings: str) -> Supervisor:
    overrides = (f"engine.type={kind}", f"engine.max_active={MAX_ACTIVE}", "engine.backoff_s=0.01", *settings)
    host = make_host(load_config(overrides=overrides, env={}).config.engine, model, place / "engine.sock")
    assert isinstance(host, Supervisor)
    return host


def files(folder: Path) -> ModelFiles:
    return inspect_folder("tiny", folder, tokenizer_path=folder)


def local_engine(folder: Path) -> Callable[[], Engine]:
    """What stands behind the protocol servers."""
    return lambda: load_engine(folder, EmbeddedOptions(device="cpu", threads=1, max_active=MAX_ACTIVE))


def protocol_server(kind: str, folder: Path) -> ForeignServer:
    cls = {"sglang": SglangServer, "vllm": VllmServer}[kind]
    return cls(local_engine(folder), tokenizer=folder, name="tiny")


@asynccontextmanager
async def started_here(
    kind: str, model: ModelFiles, place: Path, *settings: str, window: int, tolerance: float, timeout_s: float = 60.0
) -> AsyncIterator[Bench]:
    """An engine in processes of its own."""
    async with running(make(kind, model, place, *settings), timeout_s=timeout_s) as host:

        async def kill() -> None:
            life = host._life
            assert isinstance(life, ProcessLife)
            victims = psutil.Process(life.pid).children(recursive=True) or [psutil.Process(life.pid)]
            os.kill(victims[-1].pid, signal.SIGKILL)

        yield Bench(host=host, model=model, adapters=place / "made", kill=kill, tolerance=tolerance, window=window)


@asynccontextmanager
async def attached(kind: str, folder: Path, place: Path) -> AsyncIterator[Bench]:
    """An engine at a URL, behind the protocol of others."""
    server, model = protocol_server(kind, folder), files(folder)
    await server.start()

    async def kill() -> None:
        await server.kill()
        await server.start()

    try:
        async with running(make(kind, model, place, f"engine.url={server.url}")) as host:
            window = model.context_window - 1
            yield Bench(host=host, model=model, adapters=place / "made", kill=kill, tolerance=1e-4, window=window)
    finally:
        await server.close()

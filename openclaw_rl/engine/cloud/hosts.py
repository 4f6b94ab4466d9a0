"""Settings -> a worker that asks a service: what it can do, and the command that starts it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from openclaw_rl.backoff import Backoff
from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.cloud.engine import FarModel
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.engine.worker.life import ProcessLaunch
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.types import Capabilities
from openclaw_rl.types.messages import SHAPING

CLOUD = Capabilities(
    reports_checksum=False,
    scores=True,
    top_k=20,
    hot_adapters=True,
    full_weights=False,
    computes_here=False,
    logprobs_changed_by=SHAPING,  # whether they are those before a cut is nowhere said
)
START_TIMEOUT_S = 120.0


def cloud_host(
    config: EngineConfig, model: ModelFiles, socket: Path, *, name: str, desk: ServiceDesk | None = None
) -> Supervisor:
    """Starts nothing yet. A service is one: `desk` says which."""
    if desk is None:
        raise ConfigError(f"engine.type={config.type} serves what training.backend={config.type} trains; set that too")
    served = FarModel(name=model.name, vocab_size=model.vocab_size, stop_ids=model.stop_ids)
    options = {
        **desk.options(),
        "model": asdict(served),
        "max_active": config.max_active,
        "context_window": config.context_window,
    }
    command = (sys.executable, "-m", "openclaw_rl.engine.cloud", "--socket", str(socket))
    launch = ProcessLaunch(
        command=(*command, "--options", json.dumps(options)), socket=socket, environment=desk.environment()
    )
    return Supervisor(
        launch,
        SocketEngine(socket),
        capabilities=replace(CLOUD, top_k=min(CLOUD.top_k, desk.abilities().alternatives)),
        name=name,
        start_timeout_s=config.start_timeout_s or START_TIMEOUT_S,
        wait_s=config.wait_s,
        max_waiting=config.max_waiting,
        backoff=Backoff(first_s=config.backoff_s, longest_s=config.max_backoff_s),
    )

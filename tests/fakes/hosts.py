"""An engine of this process as its own host."""

from __future__ import annotations

from openclaw_rl.engine.worker.hosts import SCRIPTED
from openclaw_rl.protocols import Engine
from openclaw_rl.types import EngineState


class AlwaysThere:
    """An `EngineHost` whose engine runs in this process."""

    capabilities = SCRIPTED
    is_ready, last_error, num_restarts = True, None, 0

    def __init__(self, engine: Engine, state: EngineState) -> None:
        self.engine, self.state = engine, state

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        return self.state

    async def run(self) -> None: ...

    async def stop(self) -> None: ...

"""`openclaw-rl env serve`: rooms on this machine, for servers on others."""

from __future__ import annotations

import asyncio
import secrets

from openclaw_rl.cli.screen import make_console
from openclaw_rl.config import Config
from openclaw_rl.envs.leases.http import run_env_server
from openclaw_rl.errors import ConfigError
from openclaw_rl.wiring.envs import local_rooms, make_means


def serve_environments(config: Config, *, host: str, port: int) -> None:
    """Until Ctrl-C."""
    asyncio.run(_serve(config, host=host, port=port))


async def _serve(config: Config, *, host: str, port: int) -> None:
    console, means = make_console(), make_means(config)
    if lacks := means.sandbox.lacks():
        raise ConfigError(lacks)
    given = config.rollout.env_key
    key = secrets.token_urlsafe(32) if given is None else given.get_secret_value()

    def on_started(url: str) -> None:
        console.print(f"rooms at {url}, {config.rollout.parallel_envs} attempts at once", markup=False)
        if given is None:
            console.print(f"rollout.env_key={key}", markup=False)

    async with local_rooms(config, means) as server:
        await run_env_server(server, host=host, port=port, key=key, on_started=on_started)

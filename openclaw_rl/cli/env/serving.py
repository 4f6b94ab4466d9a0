"""`openclaw-rl env serve`: rooms on this machine, for servers on others; or a track, for whoever speaks OpenEnv."""

from __future__ import annotations

import asyncio
import secrets
import signal

from openclaw_rl.cli.screen import make_console
from openclaw_rl.config import Config
from openclaw_rl.envs.leases.http import run_env_server
from openclaw_rl.envs.registry import EnvMeans, make_environment
from openclaw_rl.envs.tasks.openenv.server import serve_openenv
from openclaw_rl.errors import ConfigError
from openclaw_rl.wiring.envs import local_rooms, make_means


def serve_environments(config: Config, *, host: str, port: int) -> None:
    """Until Ctrl-C."""
    asyncio.run(_serve(config, host=host, port=port))


def serve_track(config: Config, track: str, source: str, *, host: str, port: int) -> None:
    """Until Ctrl-C."""
    asyncio.run(_serve_track(config, track, source, host=host, port=port))


async def _serve(config: Config, *, host: str, port: int) -> None:
    means = _means(config)
    key, is_new = _key(config)

    def on_started(url: str) -> None:
        _tell(f"rooms at {url}, {config.rollout.parallel_envs} attempts at once", key, is_new=is_new)

    async with local_rooms(config, means) as server:
        await run_env_server(server, host=host, port=port, key=key, on_started=on_started)


async def _serve_track(config: Config, track: str, source: str, *, host: str, port: int) -> None:
    environment = make_environment(track, _means(config))
    key, is_new = _key(config)
    rooms = config.rollout.parallel_envs
    async with serve_openenv(environment, source=source, max_rooms=rooms, host=host, port=port, key=key) as url:
        _tell(f"{environment.name} as an OpenEnv server at {url}, {rooms} episodes at once", key, is_new=is_new)
        await _until_stopped()


async def _until_stopped() -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await stop.wait()


def _means(config: Config) -> EnvMeans:
    means = make_means(config)
    if lacks := means.sandbox.lacks():
        raise ConfigError(lacks)
    return means


def _key(config: Config) -> tuple[str, bool]:
    """The key that clients need, and whether nobody knows it yet."""
    given = config.rollout.env_key
    return (secrets.token_urlsafe(32), True) if given is None else (given.get_secret_value(), False)


def _tell(what: str, key: str, *, is_new: bool) -> None:
    console = make_console()
    console.print(what, markup=False, soft_wrap=True)
    if is_new:
        console.print(f"rollout.env_key={key}", markup=False, soft_wrap=True)

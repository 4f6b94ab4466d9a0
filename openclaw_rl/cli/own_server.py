"""A server of a command's own, for as long as the command takes: `openclaw-rl up` as a child."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import aiohttp

from openclaw_rl.cli.address import read_address
from openclaw_rl.config import LoadedConfig, StoreConfig
from openclaw_rl.config.sources import COMMAND_LINE
from openclaw_rl.errors import ConfigError, OpenClawError

_STOP_S, _HURRY_S = 90.0, 20.0
_OUTPUT = "own-server.txt"


class NotStarted(OpenClawError):
    """The child ended before it was ready."""


def refuse_settings(loaded: LoadedConfig, *, used: Collection[str] = ()) -> None:
    """Only where the data is may be said, and what the command itself makes use of: what else a running server does was
    said when it was started."""
    given = [
        key
        for key, source in loaded.sources.items()
        if source == COMMAND_LINE and not key.startswith("store.") and key not in used
    ]
    if given:
        raise ConfigError(
            f"a server runs on {loaded.config.store.data_dir}, with settings of its own, and would not hear of "
            f"{', '.join(sorted(given))}: stop it, or leave them out"
        )


@asynccontextmanager
async def own_server(store: StoreConfig, files: Sequence[Path], overrides: Sequence[str]) -> AsyncIterator[None]:
    """`openclaw-rl up` as a child that Ctrl-C in the terminal does not reach: it is stopped in order."""
    command = [sys.executable, "-m", "openclaw_rl", "up", "--port", "0"]
    for file in files:
        command += ["--config", str(file)]
    output = store.data_dir / _OUTPUT
    with await asyncio.to_thread(_open_output, output) as written:
        child = await asyncio.create_subprocess_exec(
            *command,
            *overrides,
            f"store.data_dir={store.data_dir}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    with _ended_as_by_ctrl_c():
        try:
            await _until_ready(child, store, output)
            yield
        finally:
            await _stop(child)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Whoever closes the terminal, or ends the command, ends it in order: the child would live on."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a server is started by a task"
    heard = [one for one in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(one) is signal.SIG_DFL]
    told = asyncio.Event()

    def end() -> None:
        told.set()
        task.cancel()

    for one in heard:
        loop.add_signal_handler(one, end)
    try:
        yield
    except asyncio.CancelledError:
        if told.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        for one in heard:
            loop.remove_signal_handler(one)


def _open_output(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


async def _until_ready(child: asyncio.subprocess.Process, store: StoreConfig, output: Path) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as http:
        while not await _is_ready(http, store):
            if child.returncode is not None:
                said = (await asyncio.to_thread(output.read_text, errors="replace")).strip()
                raise NotStarted(f"the server did not start:\n{said[-2000:]}")
            await asyncio.sleep(0.2)


async def _is_ready(http: aiohttp.ClientSession, store: StoreConfig) -> bool:
    address = read_address(store.data_dir)
    if address is None:
        return False
    try:
        async with http.get(f"{address.url}/readyz") as reply:
            return reply.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _stop(child: asyncio.subprocess.Process) -> None:
    """In order; another Ctrl-C meanwhile hurries it."""
    for patience_s in (_STOP_S, _HURRY_S):
        if child.returncode is not None:
            return
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(patience_s):
                await child.wait()
        except (TimeoutError, asyncio.CancelledError):
            continue
    if child.returncode is None:
        child.kill()
        await child.wait()

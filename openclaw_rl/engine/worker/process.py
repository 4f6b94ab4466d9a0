"""A function that loads an engine -> a process that serves it on a socket until it is told to go.

The process ends on SIGTERM, on SIGINT, and when its standard input reaches the end: the parent holds the other end of
that pipe, so a parent that dies, however it dies, leaves no engine behind. Logs are JSON lines on standard error; the
supervisor waits for the one whose event is "ready". Standard library only; knows no model and no wire format.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from openclaw_rl.engine.worker.server import EngineServer
from openclaw_rl.errors import OpenClawError
from openclaw_rl.logs import JsonLines
from openclaw_rl.protocols import Engine

EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: starting again with the same arguments cannot succeed."""

_STARTED_AT = time.monotonic()
_log = logging.getLogger(__name__)


def run_worker(socket: Path, load: Callable[[], Engine]) -> int:
    """Serves what `load` returns; the exit status. `load` runs in a thread and may take long."""
    _log_json_lines()
    try:
        asyncio.run(_serve(socket, load))
    except (OpenClawError, OSError) as error:
        _log.critical("fatal", extra={"reason": str(error)})
        return EXIT_CONFIG
    return 0


async def _serve(socket: Path, load: Callable[[], Engine]) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, told_to_stop.set)
    _watch_parent(told_to_stop)
    loading = asyncio.create_task(asyncio.to_thread(load))
    stopping = asyncio.create_task(told_to_stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        return
    engine = loading.result()
    server = EngineServer(engine, socket)
    try:
        await server.start()
        state = await engine.state()
        seconds = round(time.monotonic() - _STARTED_AT, 2)
        facts = {"seconds": seconds, "model": state.model, "device": state.device, "dtype": state.dtype}
        _log.info("ready", extra=facts)
        await stopping
    finally:
        await server.close()
        await engine.close()


def _watch_parent(gone: asyncio.Event) -> None:
    """Sets `gone` at the end of standard input, if that is a pipe or socket that somebody can hold."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # started without a standard input
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            gone.set()

    loop.add_reader(0, readable)


def _log_json_lines() -> None:
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr], force=True)
    logging.captureWarnings(True)

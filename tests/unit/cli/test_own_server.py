"""A server of a command's own ends with the command, however that is ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

COMMAND = """
import asyncio, signal, sys
from pathlib import Path
from openclaw_rl.cli.own_server import own_server
from openclaw_rl.config import StoreConfig

async def main():
    async with own_server(StoreConfig(data_dir=Path(sys.argv[1])), (), ("engine.type=scripted",)):
        print("ready", flush=True)
        await asyncio.sleep(600)

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, whatever started the tests
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("ended", flush=True)
"""


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_of_it_is_left(tmp_path: Path, ends: signal.Signals) -> None:
    command = subprocess.Popen((sys.executable, "-c", COMMAND, tmp_path / "data"), stdout=subprocess.PIPE, text=True)
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        (server,) = psutil.Process(command.pid).children()
        family = [server, *server.children(recursive=True)]
        command.send_signal(ends)
        said, _ = command.communicate(timeout=90)
    finally:
        command.kill()
    assert said == "ended\n"
    assert command.returncode == 0
    assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

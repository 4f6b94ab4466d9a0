"""The server's processes as the operating system sees them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import psutil

from tests.server import Server, poll


def workers(server: Server) -> list[psutil.Process]:
    """The engine processes of this data directory, whoever their parent is now; of several in the order of their
    numbers."""
    sockets = re.compile(re.escape(str(server.data_dir / "run")) + r"/engine(-\d+)?\.sock")
    found = {process: one for process in psutil.process_iter() for one in _command(process) if sockets.fullmatch(one)}
    return sorted(found, key=lambda process: found[process])


def worker(server: Server) -> psutil.Process:
    """The engine process; there is exactly one."""
    (process,) = workers(server)
    return process


def gateway(server: Server) -> psutil.Process:
    assert server.process is not None
    return psutil.Process(server.process.pid)


def comes_up(server: Server) -> bool:
    """Waits until a server that was started without waiting answers; False if it dies before that."""
    address = server.data_dir / "run" / "address.json"
    assert server.process is not None
    while server.process.poll() is None:
        if address.exists():
            server.url = json.loads(address.read_text())["url"]
            if server.is_ready():
                return True
        time.sleep(0.01)
    return False


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float = 60.0) -> None:
    def fail_if_over(waited_s: float) -> None:
        assert waited_s < timeout_s, f"waited {timeout_s:g} s in vain until {what}"

    poll(condition, fail_if_over)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []

"""The local service in a process of its own: started, told what shall go wrong, killed and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.cloud.service import Access

NAME = "tiny/tiny"
KEY = "tml-test"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class LocalService:
    """Speaks Tinker's protocol at `url`; others say another module."""

    name, module, scheme = "tinker", "tests.fakes.tinker.server", "tinker://"

    def __init__(self, model: Path, state: Path) -> None:
        self._model = model
        self._state = state
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def access(self, **changes: Any) -> Access:
        return Access(**{"service": self.name, "base_model": NAME, "url": self.url, "patience_s": 10.0, **changes})

    def folder_of(self, uri: str) -> Path:
        """Where it keeps a snapshot."""
        return self._state / "checkpoints" / uri.removeprefix(self.scheme).replace(":", "_")

    def start(self) -> None:
        command = (sys.executable, "-W", "ignore", "-m", self.module, "--model", str(self._model))
        where = ("--state", str(self._state), "--port", str(self.port), "--name", NAME)
        self.process = subprocess.Popen([*command, *where], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 150
        while True:
            try:
                httpx.get(f"{self.url}/diary")
                return
            except httpx.TransportError:
                assert time.monotonic() < until, "the service does not start"
                assert self.process.poll() is None, "the service ended"
                time.sleep(0.1)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def order(self, **control: Any) -> None:
        """What goes wrong from now on."""
        httpx.post(f"{self.url}/control", json=control).raise_for_status()

    def diary(self, event: str | None = None) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = httpx.get(f"{self.url}/diary").json()
        return [one for one in told if event in (None, one["event"])]

"""The real system in a process of its own, for tests that talk to it, kill it and start it again."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

OPEN_GATE = (
    *("release.max_kl=1000", "release.max_kl_prompt=1000", "release.max_length=1000", "release.max_against=1000"),
    *("release.min_distinct=0", "release.min_entropy=0", "release.max_repetition=1", "release.max_empty=1"),
    *("release.max_broken_calls=1", "release.max_refusals=1", "release.max_questions=1", "release.max_flattery=1"),
    *("release.max_off_topic=1", "release.capability_items=0", "release.answer_tokens=16", "release.watch=false"),
)
"""Settings of a gate that objects to nothing: a random model has no language that could be lost. Proofs are made."""


NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For requests that come often: without it httpx reads all of this machine's certificates for each, in 17 ms."""


def poll(condition: Callable[[], Any], fail_if_over: Callable[[float], None]) -> None:
    """Waits for the condition; `fail_if_over` is told for how long already. Looking takes a third of the time at most:
    whoever is waited for needs the core."""
    began = looked = time.monotonic()
    while not condition():
        fail_if_over(time.monotonic() - began)
        time.sleep(min(max(0.01, 2 * (time.monotonic() - looked)), 0.2))
        looked = time.monotonic()


class Server:
    """`openclaw-rl up` over the scripted engine, unless the settings say otherwise.

    with Server(tmp_path) as server:
        server.chat("hi")
        server.kill()
        server.start()
    """

    timeout_s = 60.0
    """Of one chat request."""
    module = "openclaw_rl"
    """What Python runs."""

    def __init__(self, data_dir: Path, *settings: str, env: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.settings = ("engine.type=scripted", *settings)
        self.env = dict(env or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def key(self) -> str:
        return (self.data_dir / "key").read_text().strip()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def start(
        self, *, command: str = "up", wait: bool = True, port: int = 0, env: Mapping[str, str] | None = None
    ) -> Self:
        """Starts it, on a free port unless one is named; with `wait`, returns when it answers requests."""
        address = self.data_dir / "run" / "address.json"
        address.unlink(missing_ok=True)
        self.data_dir.mkdir(exist_ok=True)
        with (self.data_dir / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    self.module,
                    command,
                    "--data-dir",
                    self.data_dir,
                    "--port",
                    str(port),
                    *self.settings,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.env, **(env or {})},
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self, *, timeout_s: float = 60.0) -> None:
        """Returns when it answers requests."""
        address = self.data_dir / "run" / "address.json"
        self.wait_until(address.exists)
        self.url = json.loads(address.read_text())["url"]
        self.wait_until(self.is_ready, timeout_s=timeout_s)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", verify=NO_TLS).status_code == 200
        except httpx.TransportError:
            return False

    def wait_until(self, condition: Any, *, timeout_s: float = 60.0) -> None:
        """Waits for something the server does; says what it printed if it dies or takes too long."""

        def fail_if_over(waited_s: float) -> None:
            assert self.process is not None
            if self.process.poll() is not None or waited_s > timeout_s:
                raise AssertionError(f"the server did not come so far:\n{(self.data_dir / 'output.txt').read_text()}")

        poll(condition, fail_if_over)

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ctrl-C; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)

    def chat(self, text: str | list[dict[str, Any]], **body: Any) -> httpx.Response:
        """One request; a text is one user message."""
        headers = {**self.headers, **body.pop("headers", {})}
        messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
        request = {"messages": messages, **body}
        url = f"{self.url}/v1/chat/completions"
        return httpx.post(url, json=request, headers=headers, timeout=self.timeout_s, verify=NO_TLS)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves nothing running."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

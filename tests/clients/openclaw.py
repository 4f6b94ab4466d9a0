"""OpenClaw with our plugin, in a home of its own: settings -> its commands and its gateway, and what it sends.

Knows nothing about what the answers are or what a server keeps of them.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx

from openclaw_rl.envs.harness.programs import NODE, OPENCLAW
from tests.clients.programs import SHELF

PLUGIN = Path(__file__).parents[2] / "extensions" / "rl-training-headers"
PLUGIN_ID = "rl-training-headers"
COMMAND_S = 240.0
"""How long one command may take: OpenClaw alone needs half a minute for a local turn on two busy cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request that passed by."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class Tap:
    """Stands between a client and a server: passes everything on, and keeps what the client sent in `seen`."""

    def __init__(self, server_url: str) -> None:
        self.seen: list[Seen] = []
        seen = self.seen

        class Passing(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass_on()

            def do_POST(self) -> None:
                self._pass_on()

            def _pass_on(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen.append(Seen(path=self.path, headers=headers, body=json.loads(content or b"{}")))
                kept = {name: value for name, value in headers.items() if name not in ("host", "accept-encoding")}
                url = f"{server_url}{self.path}"
                with httpx.stream(self.command, url, headers=kept, content=content, timeout=COMMAND_S) as answer:
                    self.send_response(answer.status_code)
                    self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
                    self.end_headers()
                    for piece in answer.iter_raw():
                        self.wfile.write(piece)
                        self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class OpenClaw:
    """The program in a home of its own; it asks the server at `url`, and the plugin in the folder `plugin` is in it."""

    def __init__(self, home: Path, *, url: str, key: str, plugin: Path) -> None:
        self._home = home
        self._port = _free_port()
        self._command = SHELF.install(OPENCLAW)
        self._env = {
            "HOME": str(home),
            "PATH": f"{SHELF.install(NODE).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENCLAW_GATEWAY_TOKEN": "no-secret",
        }
        folder = home / ".openclaw"
        folder.mkdir(parents=True)
        (folder / "openclaw.json").write_text(json.dumps(self._config(url, key)))
        self.run("plugins", "install", "--link", plugin, "--force", "--accept-capabilities")

    def run(self, *arguments: str | Path, timeout_s: float = COMMAND_S) -> str:
        """What a command printed."""
        done = subprocess.run(
            [self._command, *arguments],
            env=self._env,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"openclaw {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def set(self, path: str, value: Any) -> None:
        self.run("config", "set", path, json.dumps(value), "--strict-json")

    def allow_conversation_access(self) -> None:
        self.set(f"plugins.entries.{PLUGIN_ID}.hooks.allowConversationAccess", True)

    @contextmanager
    def gateway(self) -> Iterator[None]:
        """Its gateway, running."""
        log = self._home / "gateway.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self._command, "gateway", "run"],
                env=self._env,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            end = time.monotonic() + COMMAND_S
            while not self._is_ready():
                assert process.poll() is None, f"the gateway died:\n{log.read_text()}"
                assert time.monotonic() < end, f"the gateway did not come up:\n{log.read_text()}"
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _config(self, url: str, key: str) -> dict[str, Any]:
        free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        model = {"id": "model", "name": "Model", "reasoning": False, "input": ["text"], "cost": free}
        limits = {"contextWindow": 65536, "maxTokens": 8192}
        provider = {"baseUrl": f"{url}/v1", "apiKey": key, "api": "openai-completions", "models": [{**model, **limits}]}
        auth = {"mode": "token", "token": self._env["OPENCLAW_GATEWAY_TOKEN"]}
        return {
            "gateway": {"mode": "local", "port": self._port, "bind": "loopback", "auth": auth},
            "update": {"checkOnStart": False},
            "logging": {"file": str(self._home / "openclaw.log")},
            "agents": {"defaults": {"model": {"primary": "rl/model"}, "heartbeat": {"every": "0m"}}},
            "models": {"providers": {"rl": provider}},
        }


def built_plugin(folder: Path) -> Path:
    """The plugin, built from a fresh copy of its sources as its README says."""
    shutil.copytree(PLUGIN, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    for command in (("npm", "install"), ("npm", "run", "build")):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

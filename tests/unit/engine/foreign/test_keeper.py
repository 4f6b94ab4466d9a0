"""The process around a server: it says when it is ready and why it ended, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

SERVE = """
import http.server, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("(APIServer pid=7) INFO 11-19 20:35:37 [launcher.py:1] up", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_): ...
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
COMPLAIN = """
import http.server, signal, sys
def end(*_):
    print("(APIServer pid=7) ERROR 11-19 [async_llm.py:1] EngineDeadError: EngineCore is gone", flush=True)
    raise SystemExit(0)
signal.signal(signal.SIGTERM, end)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), type("H", (http.server.BaseHTTPRequestHandler,), {
    "do_GET": lambda self: (self.send_response(200), self.end_headers()), "log_message": lambda *_: None
})).serve_forever()
"""
FAIL = """
print("(EngineCore pid=9) ERROR 11-19 [core.py:1] RuntimeError: no memory left for the cache")
print("RuntimeError: Engine core initialization failed. See root cause above.")
raise SystemExit(1)
"""


@asynccontextmanager
async def kept(program: str) -> AsyncIterator[asyncio.subprocess.Process]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", program, str(port)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "openclaw_rl.engine.foreign.keeper", f"http://127.0.0.1:{port}/health", *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lines(process: asyncio.subprocess.Process, *, until: str) -> list[dict[str, Any]]:
    assert process.stdout is not None
    told: list[dict[str, Any]] = []
    while not told or told[-1]["event"] != until:
        told.append(json.loads(await process.stdout.readline()))
    return told


@pytest.mark.parametrize("by", ["a signal", "the death of its parent"])
async def test_it_ends_with_everything_it_started(by: str) -> None:
    async with kept(SERVE) as process:
        told = await lines(process, until="ready")
        assert ("debug", True) in [(line["level"], "launcher.py" in line["event"]) for line in told]
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) == 2
        if by == "a signal":
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            process.stdin.close()
        await process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, started, timeout=5.0)
        assert alive == []


async def test_what_it_says_when_it_is_told_to_end_alarms_nobody() -> None:
    async with kept(COMPLAIN) as process:
        await lines(process, until="ready")
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        told = [json.loads(line) for line in (await process.stdout.read()).splitlines()]
        assert [(line["level"], "EngineDeadError" in line["event"]) for line in told] == [("debug", True)]


async def test_the_first_error_is_the_reason() -> None:
    async with kept(FAIL) as process:
        told = await lines(process, until="fatal")
        assert told[-1]["reason"] == ("the server ended with exit status 1: RuntimeError: no memory left for the cache")
        assert await process.wait() != 0

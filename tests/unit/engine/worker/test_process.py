"""A worker as a real process: how it starts, and that it always ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.engine.worker.process import EXIT_CONFIG
from tests.unit.engine.prompts import ask, chat, until_error, whole


def command(socket: Path, folder: Path, options: str = "{}") -> list[str]:
    module = ["-m", "openclaw_rl.engine.scripted"]
    return [sys.executable, *module, "--socket", str(socket), "--tokenizer", str(folder), "--options", options]


async def start(*arguments: str, stdin: int = PIPE) -> Process:
    return await asyncio.create_subprocess_exec(*arguments, stdin=stdin, stderr=PIPE)


async def ready(process: Process) -> dict[str, object]:
    assert process.stderr is not None
    line: dict[str, object] = json.loads(await process.stderr.readline())
    assert line["event"] == "ready", line
    return line


async def test_it_says_when_it_is_ready_and_serves(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    process = await start(*command(tmp_path / "s", tokenizer_folder))
    line = await ready(process)
    assert line["model"] == tokenizer_folder.name
    client = SocketEngine(tmp_path / "s")
    answer = await whole(client, ask(chat(tokenizer, "hello")))
    assert answer.finish_reason == "stop"
    await client.close()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert not (tmp_path / "s").exists()


async def test_it_ends_with_its_standard_input(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    process = await start(*command(tmp_path / "s", tokenizer_folder, '{"first_token_delay_s": 3600}'))
    await ready(process)
    client = SocketEngine(tmp_path / "s")
    running = asyncio.ensure_future(until_error(client, ask(chat(tokenizer, "hello"))))
    await client.state()
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0
    assert (await running)[1] is not None
    await client.close()


async def test_it_runs_without_a_pipe_until_it_is_told(tokenizer_folder: Path, tmp_path: Path) -> None:
    process = await start(*command(tmp_path / "s", tokenizer_folder), stdin=DEVNULL)
    await ready(process)
    assert process.returncode is None
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0


_PARENT = """
import subprocess, sys, time
worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
worker.stderr.readline()
print(worker.pid, flush=True)
time.sleep(3600)
"""


async def test_a_killed_parent_leaves_no_worker(tokenizer_folder: Path, tmp_path: Path) -> None:
    arguments = command(tmp_path / "s", tokenizer_folder)
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", _PARENT, *arguments, stdout=PIPE)
    assert parent.stdout is not None
    worker = os.pidfd_open(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(worker, gone.set)  # a pidfd is readable once the process has ended
    await gone.wait()
    asyncio.get_running_loop().remove_reader(worker)
    os.close(worker)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("options", ["{}", '{"speed": 3}'])
async def test_what_cannot_start_says_why(tmp_path: Path, options: str) -> None:
    process = await start(*command(tmp_path / "s", tmp_path / "nowhere", options))
    _, output = await process.communicate()
    assert process.returncode == EXIT_CONFIG
    line = json.loads(output.splitlines()[-1])
    assert line["event"] == "fatal"
    assert ("options" if "speed" in options else "tokenizer.json") in line["reason"]

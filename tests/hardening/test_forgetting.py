"""Forgetting under load: within seconds no byte of a conversation is in any file, while everybody else goes on talking.

`make test` runs the short form; `make test-hardening` the long one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.audit import check_sound
from tests.faults.crowd import Crowd
from tests.hardening.report import report
from tests.server import Server


def files_with(folder: Path, words: str) -> list[str]:
    """The files in which these bytes are, of all that the server has."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and words.encode() in path.read_bytes():
                found.append(path.name)
        except FileNotFoundError:
            pass  # a scratch file that has come to its place meanwhile
    return found


def told_to_forget(server: Server, session: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "openclaw_rl", "forget", session, "--yes", "--json", "--data-dir"]
    done = subprocess.run([*command, str(server.data_dir)], capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def remember(server: Server, mark: str, *, turns: int) -> str:
    """A conversation whose every message bears the mark; its session."""
    history: list[dict[str, Any]] = []
    session = ""
    for number in range(turns):
        history.append({"role": "user", "content": f"{mark} {number} " + "word " * (60 * number)})
        answer = server.chat(history)
        session = answer.headers["X-OpenClaw-RL-Turn"].rpartition(".")[0]
        history.append(answer.json()["choices"][0]["message"])
    return session


@pytest.mark.parametrize(
    ("num_forgotten", "turns"),
    [(2, 6), pytest.param(10, 20, marks=[pytest.mark.hardening, pytest.mark.timeout(900)])],
)
async def test_no_byte_is_left_under_load(tmp_path: Path, num_forgotten: int, turns: int) -> None:
    took: list[float] = []
    with Server(tmp_path / "data") as server:
        crowd, enough = Crowd(seed=26), asyncio.Event()
        talking = asyncio.create_task(crowd.talk(server, until=enough, survives=True))
        for number in range(num_forgotten):
            mark = f"MARK{number}x7391"
            session = await asyncio.to_thread(remember, server, mark, turns=turns)
            assert files_with(server.data_dir, mark), "it was never there, so this shows nothing"
            before, began = crowd.num_answered, time.monotonic()
            told = await asyncio.to_thread(told_to_forget, server, session)
            took.append(time.monotonic() - began)
            assert (told["sessions"], told["erased"]) == (1, True)
            assert crowd.num_answered > before, "others were answered meanwhile"
            assert files_with(server.data_dir, mark) == []
        enough.set()
        await talking
        check_sound(server.data_dir)
    report(
        "forget under load",
        forgotten=num_forgotten,
        answers_meanwhile=crowd.num_answered,
        bytes_left=0,
        seconds_longest=round(max(took), 2),
    )

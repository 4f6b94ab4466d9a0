"""`rollouts collect` against the running server: while people talk, through Ctrl-C, kill -9 and a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

import openclaw_rl
from tests.server import Server

PATIENCE_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", 'engine.scripted.replies=[{"match": "gravity", "reply": "It pulls."}]') as running:
        yield running


class Collecting:
    """`openclaw-rl rollouts collect` in a process of its own, on no data directory of the server's."""

    def __init__(self, server: Server, folder: Path, *flags: str, key: str | None = None) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "openclaw_rl", "rollouts", "collect", "--api-endpoint", server.url, *flags]
        command += ["--key", key or server.key, "--output-dir", str(folder), "--data-dir", str(folder / "nowhere")]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})

    def wait_for(self, *ids: str) -> None:
        """Returns when exactly these turns are written."""
        end = time.monotonic() + PATIENCE_S
        while (found := sorted(line["id"] for line in self.lines())) != sorted(ids):
            assert time.monotonic() < end, f"{found} instead of {ids}"
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            time.sleep(0.05)

    def lines(self) -> list[dict[str, Any]]:
        texts = (path.read_text() for path in sorted(self.folder.glob("*.jsonl")))
        return [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self, name: int = signal.SIGINT) -> str:
        self.process.send_signal(name)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        if name == signal.SIGINT:
            assert self.process.returncode == 0, errors
        return errors


Messages = list[dict[str, Any]]


def talk(server: Server, session: str, *texts: str, after: Messages | None = None, header: str = "") -> Messages:
    """A conversation under a name, or how one goes on; its messages."""
    messages = [*(after or [])]
    name, _, value = header.partition(": ")
    headers = {"X-Session-Id": session} | ({name: value} if name else {})
    for text in texts:
        messages.append({"role": "user", "content": text})
        answer = server.chat(messages, headers=headers).json()
        messages.append(answer["choices"][0]["message"])
    return messages


def test_turns_are_written_while_they_happen_and_once(server: Server, tmp_path: Path) -> None:
    first = talk(server, "first", "What is gravity?", "thanks")
    with Collecting(server, tmp_path / "out", "--session-aware") as collecting:
        collecting.wait_for("first.0")
        talk(server, "second", "hi", "again", "bye")
        talk(server, "second", "a title, please", header="X-Turn-Type: side")
        talk(server, "private", "secret", "more", header="X-No-Train: 1")
        collecting.wait_for("first.0", "second.0", "second.1")
        assert "nothing has followed 3 of them yet" in collecting.stop()
    by_id = {line["id"]: line for line in collecting.lines()}
    assert {name: line["next_state"] is None for name, line in by_id.items()} == {
        "first.0": False,
        "first.1": True,
        "second.0": False,
        "second.1": False,
        "second.2": True,
        "second.3": True,
    }
    assert by_id["first.0"]["text"] == "It pulls."
    assert by_id["second.3"]["type"] == "side"

    talk(server, "first", "and now?", after=first, header="X-Session-Done: 1")
    with Collecting(server, tmp_path / "out", "--session-aware") as again:
        again.wait_for(*by_id, "first.2")
        again.stop()
    found = openclaw_rl.inspect_sessions(tmp_path / "out")
    assert {name: [turn["type"] for turn in turns] for name, turns in found.items()} == {
        "first": ["main"] * 3,
        "second": ["main", "main", "main", "side"],
    }
    states = [turn["next_state"] for turn in found["first"]]
    assert [state and state[0]["content"] for state in states] == ["thanks", "and now?", None]
    assert len(again.lines()) == 7, "no turn is written twice"


def test_a_killed_collector_and_a_restarted_server_lose_and_repeat_nothing(server: Server, tmp_path: Path) -> None:
    talk(server, "a", "one", "two", "three")
    with Collecting(server, tmp_path / "out") as killed:
        killed.wait_for("a.0", "a.1")
        killed.stop(signal.SIGKILL)
    (tmp_path / "out" / ".collect.json").unlink(missing_ok=True)
    path = tmp_path / "out" / "rollouts.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    with Collecting(server, tmp_path / "out") as collecting:
        collecting.wait_for("a.0", "a.1")
        port = server.url.rpartition(":")[2]
        server.kill()
        server.settings = (*server.settings, f"gateway.port={port}")
        server.start()
        talk(server, "b", "one", "two")
        collecting.wait_for("a.0", "a.1", "b.0")
        assert "nothing has followed 2 of them yet" in collecting.stop()


def test_everybody_reads_their_own(server: Server, tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "openclaw_rl", "keys", "add", "carol", "--json", "--data-dir", str(server.data_dir)],
        capture_output=True,
        text=True,
        check=True,
    )
    carol = json.loads(made.stdout)["key"]
    talk(server, "mine", "one", "two")
    url = f"{server.url}/v1/rollouts"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers={"Authorization": f"Bearer {carol}"}).json()["data"] == []
    assert [turn["id"] for turn in httpx.get(url, headers=server.headers).json()["data"]] == ["mine.0"]
    with Collecting(server, tmp_path / "out", key="wrong") as refused:
        _, errors = refused.process.communicate(timeout=PATIENCE_S)
        assert (refused.process.returncode, errors) == (1, "error: that API key is not known here\n")


def test_a_server_that_stops_does_not_wait_for_who_waits(server: Server) -> None:
    command = ["curl", "-s", "-H", f"Authorization: Bearer {server.key}", f"{server.url}/v1/rollouts?wait_s=60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        time.sleep(0.5)
        assert waiting.poll() is None
        assert server.process is not None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_S / 2) == 0, "long before who waits would have been answered"
        assert waiting.stdout is not None
        assert json.loads(waiting.stdout.read())["data"] == []

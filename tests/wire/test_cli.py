"""The commands against the running server: through pipes as scripts use them, and in a terminal as a person does."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

from openclaw_rl.protocols import Renderer
from tests.server import Server

PATIENCE_S = 30.0
WORDS = " ".join(f"word{i}" for i in range(200))
_IN_TERMINAL = """
import os, sys
os.login_tty(int(sys.argv[1]))
os.execv(sys.executable, [sys.executable, "-m", "openclaw_rl", *sys.argv[2:]])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("cli") / "data", "engine.scripted.tokens_per_s=60") as running:
        yield running


def command(server: Server, *words: str, typed: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run one command on the server's directory; what it printed."""
    line = [sys.executable, "-m", "openclaw_rl", *words, "--data-dir", str(server.data_dir)]
    done = subprocess.run(line, input=typed, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stderr
    return done


def as_json(server: Server, *words: str, status: int = 0) -> Any:
    return json.loads(command(server, *words, "--json", status=status).stdout)


class Terminal:
    """A chat in a terminal of its own, seen as the bytes that it writes there."""

    def __init__(self, server: Server) -> None:
        self._screen, inside = os.openpty()
        termios.tcsetwinsize(self._screen, (40, 400))
        line = [sys.executable, "-c", _IN_TERMINAL, str(inside), "chat", "--data-dir", str(server.data_dir)]
        env = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "NO_COLOR": "1"}
        self.process = subprocess.Popen(line, pass_fds=[inside], env=env)
        os.close(inside)
        self._seen = ""

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait_for(self, text: str) -> None:
        """Returns when `text` has appeared after what was waited for before."""
        while text not in self._seen:
            ready, _, _ = select.select([self._screen], [], [], PATIENCE_S)
            assert ready, f"{text!r} did not appear; on the screen: {self._seen!r}"
            self._seen += os.read(self._screen, 65536).decode()
        self._seen = self._seen.partition(text)[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


def test_a_script_chats_rates_and_finds_everything_again(server: Server, renderer: Renderer) -> None:
    done = command(server, "chat", typed="Hello\n/good\nand\tagain grün\n/new\nalone\n/bad too short\n")
    assert done.stdout == "You said: Hello\nYou said: and\tagain grün\nYou said: alone\n"
    session = next(word for word in done.stderr.split() if word.startswith("chat-")).removesuffix(".0")
    assert f"v0 · {session}.0 · " in done.stderr

    listed = {row["id"]: row for row in as_json(server, "sessions")}
    assert listed[session]["main_turns"] == 2
    assert (listed[session]["user"], listed[session]["client"]) == ("local", "openclaw-rl-chat")

    shown = as_json(server, "inspect", session)
    first, second = shown["turns"]
    assert (first["parent"], second["parent"]) == (None, f"{session}.0")
    assert [message["content"] for message in second["request"]] == ["Hello", "You said: Hello", "and\tagain grün"]
    assert first["next_state"] == [{"role": "user", "content": "and\tagain grün"}]
    assert [(f["score"], f["text"]) for f in first["feedback"]] == [(1, "")]
    for turn in (first, second):
        assert renderer.decode(turn["token_ids"]).removesuffix("<|im_end|>") == turn["text"]
        assert turn["version_spans"] == [{"version": "v0", "start": 0, "end": len(turn["token_ids"])}]
    before = first["prompt_ids"] + first["token_ids"]
    assert second["prompt_ids"][: len(before)] == before
    assert "Hello" in command(server, "inspect", f"{session}.0").stdout
    assert session in command(server, "sessions").stdout


def test_a_line_that_is_refused_is_told_and_the_rest_goes_on(server: Server) -> None:
    done = command(server, "chat", typed="/nonsense\nstill here\n", status=1)
    assert done.stdout == "You said: still here\n"
    assert "error: /nonsense is no command" in done.stderr


def test_a_key_opens_the_door_until_it_is_revoked(server: Server) -> None:
    made = as_json(server, "keys", "add", "carol", "--label", "laptop")
    models = f"{server.url}/v1/models"
    headers = {"x-api-key": made["key"]}
    assert httpx.get(models, headers=headers).status_code == 200
    assert [row["label"] for row in as_json(server, "keys", "list") if row["id"] == made["id"]] == ["laptop"]
    command(server, "keys", "revoke", made["id"])
    assert httpx.get(models, headers=headers).status_code == 401
    refused = command(server, "chat", "--url", server.url, "--key", made["key"], typed="hi\n", status=1)
    assert "--key" in refused.stderr


def test_the_doctor_sees_the_server(server: Server) -> None:
    (server.data_dir / "output.txt").chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-m", "openclaw_rl", "doctor", "--json", "--data-dir", str(server.data_dir)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    report = json.loads(done.stdout)
    found = {check["name"]: check for check in report["checks"]}
    assert done.returncode == (0 if report["ok"] else 1)
    assert (found["server"]["state"], found["server"]["text"]) == ("ok", f"ready at {server.url}")
    assert (found["data"]["state"], found["model"]["state"], found["window"]["state"]) == ("ok", "ok", "remark")


def test_a_second_server_is_refused_in_one_line(server: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    same_directory = command(server, "up", "--dry-run", "--port", "0", status=1)
    assert "already writes" in same_directory.stderr
    other = Server(tmp_path_factory.mktemp("other") / "data")
    same_port = command(other, "up", "--dry-run", "--port", server.url.rpartition(":")[2], status=2)
    assert "choose another address with --port" in same_port.stderr
    for done in (same_directory, same_port):
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_a_person_stops_an_answer_and_goes_on(server: Server) -> None:
    with Terminal(server) as terminal:
        terminal.wait_for("›")
        terminal.press(f"{WORDS}\r")
        terminal.wait_for("You said: word0 word1")
        terminal.press("\x03")
        terminal.wait_for(" · stopped")
        terminal.wait_for("›")
        terminal.press("\x1b[200~two\nlines\x1b[201~")
        terminal.wait_for("lines")
        terminal.press("\r")
        terminal.wait_for("You said: two")
        terminal.wait_for(" tokens · ")
        terminal.press("/bad too long\r")
        terminal.wait_for("Noted for ")
        terminal.wait_for("›")
        terminal.press("\x04")
        assert terminal.process.wait(PATIENCE_S) == 0
    newest = as_json(server, "sessions", "--limit", "1")[0]["id"]
    stopped, answered = as_json(server, "inspect", newest)["turns"]
    assert (stopped["skip"], stopped["finish_reason"]) == ("aborted", "abort")
    assert answered["request"][1]["content"] == stopped["text"]
    assert answered["text"] == "You said: two\nlines"
    assert [f["score"] for f in answered["feedback"]] == [-1]
    assert not (server.data_dir / "chat_history").exists()
    with Terminal(server) as terminal:
        terminal.wait_for("›")
        terminal.press("\x1b[A")
        terminal.wait_for("lines")
        terminal.press("\x03\x03")
        assert terminal.process.wait(PATIENCE_S) == 0


def test_a_person_leaves_with_two_ctrl_c(server: Server) -> None:
    with Terminal(server) as terminal:
        terminal.wait_for("›")
        terminal.press("never sent\x03")
        terminal.wait_for("Ctrl-C again")
        terminal.wait_for("›")
        terminal.press("\x03")
        assert terminal.process.wait(PATIENCE_S) == 0


def test_the_chat_outlives_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    port_then = ""
    with Server(tmp_path_factory.mktemp("mortal") / "data", "engine.scripted.tokens_per_s=60") as mortal:
        port_then = mortal.url.rpartition(":")[2]
        with Terminal(mortal) as terminal:
            terminal.wait_for("›")
            terminal.press(f"{WORDS}\r")
            terminal.wait_for("You said: word0 word1")
            mortal.kill()
            terminal.wait_for("error: the server broke off")
            terminal.wait_for("›")
            terminal.press("anybody?\r")
            terminal.wait_for("error: no server answers")
            terminal.wait_for("›")
            mortal.settings = (*mortal.settings, f"gateway.port={port_then}")
            mortal.start()
            terminal.press("anybody?\r")
            terminal.wait_for("You said: anybody?")
            terminal.press("/quit\r")
            assert terminal.process.wait(PATIENCE_S) == 0
